"""Why a plan is as it is: what bound it, what its neighbours cost or break, and at which load it changes."""

import numpy as np

from swingpool_control.sizing.programme import spending, totals
from swingpool_control.sizing.programme.answer import Alternative, Constraint, Threshold
from swingpool_control.sizing.programme.arrays import Arrays
from swingpool_control.sizing.programme.coverage import able
from swingpool_control.sizing.programme.neighbourhood import NOTHING, Moves, Neighbourhood
from swingpool_control.sizing.programme.problem import ROLES, PoolOption, Problem
from swingpool_control.sizing.programme.totals import TOLERANCE, Serving


class Reasons:
    """What is to be said about a plan.

    Args:
        problem: the problem.
        serving: the plan, by pool and role.
    """

    def __init__(self, problem: Problem, serving: Serving) -> None:
        self._problem = problem
        self._serving = serving
        self._near = Neighbourhood(Arrays(problem))
        self._moves: Moves = self._near.moves(self._near.nearest(serving))
        self._counts = totals.counts(problem, serving)
        self._known = totals.totals(problem, serving)

    def binding(self) -> Constraint | None:
        """Return what makes the plan as large as it is: what is broken without the worker that would save most."""
        for place in np.argsort(-self._near.arrays.unit, kind="stable"):
            pool, role = self._near.places[place]
            if self._serving.get((pool.name, role), 0) > 0:
                broken = self._breaks(int(place), NOTHING)
                if broken is not None:
                    return broken
        return None

    def violated(self) -> tuple[Constraint, ...]:
        """Return what a least bad plan does not keep; for a role that lacks workers, with what keeps it from more."""
        found = []
        for constraint in totals.broken(self._problem, self._serving):
            role = next((role for role in ROLES if constraint.code.lower().startswith(role)), None)
            bound = None if role is None else self.lacking(role)
            if bound is not None:
                found.append(bound)
            found.append(constraint)
        if not found:
            found.append(Constraint(code="Link", message="the links between sites do not carry the KV cache"))
        return tuple(dict.fromkeys(found))

    def lacking(self, role: str) -> Constraint | None:
        """Return what keeps a role from one worker more in the pool where it is cheapest; None if nothing does."""
        why = Constraint(code="NoPool", message=f"no pool can serve {role}")
        for pool in sorted(able(self._problem, role), key=lambda pool: (-self._price(pool, role), pool.name)):
            if pool.rates[role].best <= 0:
                why = Constraint(code="Unreachable", message=f"workers of pool {pool.name} never meet its objective")
            elif self._counts[pool.name] >= pool.most:
                why = totals.too_many(self._problem, pool.name)
            else:
                more = self._counts | {pool.name: self._counts[pool.name] + 1}
                budget = spending.broken(self._problem, more)
                if budget is None:
                    return None
                why = Constraint(code=budget.code, message=budget.message)
        return why

    def alternatives(self) -> tuple[Alternative, ...]:
        """Return the plan's neighbours: one worker less or more in each place, one in the other role."""
        found = []
        for place, (pool, role) in enumerate(self._near.places):
            if self._serving.get((pool.name, role), 0) > 0:
                found.append(self._alternative(place, NOTHING, f"one {role} worker less in pool {pool.name}"))
                for target, (other, to_role) in enumerate(self._near.places):
                    if other is pool and to_role != role:
                        found.append(self._alternative(place, target, f"one worker of pool {pool.name} to {to_role}"))
        for place, (pool, role) in enumerate(self._near.places):
            found.append(self._alternative(NOTHING, place, f"one {role} worker more in pool {pool.name}"))
        return tuple(found)

    def thresholds(self) -> tuple[Threshold, ...]:
        """Return up to which rate a role lasts, and what is needed beyond: a flip if the other role can spare it."""
        rates = self._known.sustained
        places = {(pool.name, role): at for at, (pool, role) in enumerate(self._near.places)}
        found = []
        for role in ROLES:
            change = f"one more {role} worker at {rates[role]:.4g} requests/s"
            for (name, from_role), place in places.items():
                target = places.get((name, role), place)
                if target != place and self._serving.get((name, from_role), 0) and self._breaks(place, target) is None:
                    pool = self._near.places[place][0]
                    change = f"one worker of pool {pool.name} to {role} at {rates[role]:.4g} requests/s"
            found.append(Threshold(role=role, requests_per_s=rates[role], change=change))
        return tuple(sorted(found, key=lambda threshold: threshold.requests_per_s))

    def _alternative(self, source: int, target: int, change: str) -> Alternative:
        cost = watts = 0.0
        for sign, place in ((-1, source), (1, target)):
            if place != NOTHING:
                pool, role = self._near.places[place]
                cost, watts = cost + sign * pool.price_per_hour, watts + sign * pool.watts_in(role)
        return Alternative(
            change=change,
            cost_per_hour=cost,
            watts=watts,
            load={role: float(load[source, target]) for role, load in zip(ROLES, self._moves.load, strict=True)},
            breaks=self._breaks(source, target),
        )

    def _breaks(self, source: int, target: int) -> Constraint | None:
        """What a move would break."""
        gaining = None if target == NOTHING else self._near.places[target][0]
        losing = None if source == NOTHING else self._near.places[source][0]
        if gaining is not None and gaining is not losing and self._counts[gaining.name] >= gaining.most:
            return totals.too_many(self._problem, gaining.name)
        if gaining is not None and self._moves.over[source, target] > TOLERANCE:
            more = self._counts | {gaining.name: self._counts[gaining.name] + 1}
            budget = spending.broken(self._problem, more)
            if budget is not None:
                return Constraint(code=budget.code, message=budget.message)
        if losing is not None and losing is not gaining and self._counts[losing.name] <= losing.fewest:
            return Constraint(code="MinReplicas", message=f"pool {losing.name} must have {losing.fewest} workers")
        return self._short(source, target)

    def _short(self, source: int, target: int) -> Constraint | None:
        """What a move would leave too small."""
        for role, load in zip(ROLES, self._moves.load, strict=True):
            left = self._known.workers[role]
            left -= source != NOTHING and self._near.places[source][1] == role
            left += target != NOTHING and self._near.places[target][1] == role
            if left <= 0:
                return Constraint(code="NoWorker", message=f"{role} must have a worker")
            after = float(load[source, target])
            if after > 1 + TOLERANCE:
                code = f"{role.capitalize()}Capacity"
                return Constraint(code=code, message=f"{role} would be loaded to {after:.0%} within the objectives")
        if self._moves.missed[source, target] > TOLERANCE:
            return Constraint(code="SpareWorker", message="the need would not be sustained if a worker were lost")
        return None

    def _price(self, pool: PoolOption, role: str) -> float:
        """How much a pool's worker adds to a role for the objective's unit."""
        unit = spending.objective_per_worker(self._problem.weights, pool, role)
        return pool.rates[role].best / max(unit, 1e-12)
