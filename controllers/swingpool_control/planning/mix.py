"""The cheapest mix of workers for traffic that changes: what stays in its role, and what must swing.

Each stretch of the traffic is a question to the sizing programme, in which every worker may take either role. The mix
must hold in each of them, so the stretches that ask for most are answered one after the other, and each may only add
to what the ones before needed. A worker that has the same role in every stretch belongs to a pool of that role; what
remains swings.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from swingpool_control.api.quantities import money
from swingpool_control.api.v1alpha1 import InferenceClusterSpec, Objectives, Pool, PoolRole
from swingpool_control.engine.model import PerformanceModel
from swingpool_control.planning.stretches import Stretch
from swingpool_control.sizing.objectives import by_percentile
from swingpool_control.sizing.programme import (
    ALL_PRODUCTS,
    ROLES,
    Answer,
    Constraint,
    Limits,
    PoolOption,
    Problem,
    Rates,
    solve,
)
from swingpool_control.sizing.rates import Latencies, sustains
from swingpool_control.sizing.traffic import Traffic

MARGIN = 0.97
"""A stretch that needs less than this share of another one's workers in both roles is covered where that one is."""

NOTHING = Rates(steps=((1, 0.0),))
"""Of workers with which no objective can be met, however many they are."""

ROLES_OF = {PoolRole.PREFILL: ROLES[:1], PoolRole.DECODE: ROLES[1:], PoolRole.SWING: ROLES}


class PlanError(ValueError):
    """What was asked for cannot be planned; the message says what to change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workers:
    """What one of the user's pools becomes."""

    pool: str
    prefill: int
    """Always in this role."""
    decode: int
    swing: int
    least_swing: int
    """Swing workers that the quietest stretch leaves needed."""

    @property
    def total(self) -> int:
        """All of them."""
        return self.prefill + self.decode + self.swing


@dataclass(frozen=True, slots=True, kw_only=True)
class Mix:
    """A mix of workers for a whole traffic."""

    workers: tuple[Workers, ...]
    """In the order of the spec's pools."""
    cost_per_hour: float
    violated: tuple[Constraint, ...]
    """What could not be kept in the busiest stretch; empty if all holds."""
    peak: Stretch
    """The stretch that asked for most."""
    at_peak: Answer
    """What the programme says of the mix in it."""

    @property
    def total(self) -> int:
        """All workers."""
        return sum(one.total for one in self.workers)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a plan is made for."""

    spec: InferenceClusterSpec
    """Its pools are the accelerator types on offer: layout, price, `replicas.max` the most; a Swing pool's workers may
    take either role."""
    models: Mapping[str, PerformanceModel]
    """By pool."""
    stretches: tuple[Stretch, ...]

    def scaled(self, factor: float) -> "Asked":
        """Return the same at another rate."""
        return replace(
            self,
            stretches=tuple(
                replace(one, traffic=one.traffic.at_rate(one.traffic.requests_per_s * factor)) for one in self.stretches
            ),
        )

    def with_objectives(self, objectives: Objectives) -> "Asked":
        """Return the same with other objectives."""
        return replace(self, spec=self.spec.model_copy(update={"objectives": objectives}))

    def with_pools(self, pools: tuple[Pool, ...]) -> "Asked":
        """Return the same with other pools, whose names are those of known models."""
        return replace(self, spec=self.spec.model_copy(update={"pools": pools}))


def mix(asked: Asked) -> Mix:
    """Return the cheapest mix that holds in every stretch, as far as the formulas can tell.

    Raises:
        PlanError: there is no traffic, or some pools have prices and others none.
    """
    if not asked.stretches:
        raise PlanError("no request arrives: there is nothing to plan for")
    problems = _hardest_first(asked)
    fewest = {pool.name: 0 for pool in asked.spec.pools}
    answers: list[tuple[Stretch, Problem, Answer]] = []
    for stretch, problem in problems:
        answer = solve(_with(problem, fewest=fewest))
        fewest = {name: max(count, fewest[name]) for name, count in answer.counts().items()}
        answers.append((stretch, problem, answer))
    settled = [solve(_with(problem, fewest=fewest, most=fewest)) for _, problem, _ in answers]
    quiet = _quietest(asked)
    workers = tuple(_workers(pool.name, settled, fewest[pool.name], quiet) for pool in asked.spec.pools)
    hardest = max(range(len(settled)), key=lambda number: max(settled[number].load.values()))
    return Mix(
        workers=workers,
        cost_per_hour=cost_per_hour(asked.spec, workers),
        violated=next((answer.violated for _, _, answer in answers if answer.violated), ()),
        peak=answers[hardest][0],
        # What made the mix as large as it is, not that it may be no other now.
        at_peak=replace(settled[hardest], binding=solve(problems[hardest][1]).binding),
    )


def cost_per_hour(spec: InferenceClusterSpec, workers: tuple[Workers, ...]) -> float:
    """Return the price of workers, or the number of their accelerators where no pool has a price."""
    return sum(price * one.total for one, price in zip(workers, _prices(spec.pools), strict=True))


def options(asked: Asked, traffic: Traffic) -> tuple[PoolOption, ...]:
    """Return what the programme may choose from, for one traffic."""
    found = []
    latencies = Latencies.of(
        ttft=by_percentile(asked.spec.objectives.ttft), itl=by_percentile(asked.spec.objectives.itl)
    )
    for pool, price in zip(asked.spec.pools, _prices(asked.spec.pools), strict=True):
        most = pool.replicas.most or 0
        roles = ROLES_OF[pool.role]
        able = sustains(asked.models[pool.name], traffic=traffic, latencies=latencies, roles=roles, most=max(1, most))
        rates = {role: NOTHING if role in able.unreachable else able.rates[role] for role in roles}
        found.append(
            PoolOption(
                name=pool.name,
                rates=rates,
                fewest=0,
                most=most,
                price_per_hour=price,
                product=pool.accelerator.product,
                accelerators=pool.accelerator.count,
            )
        )
    return tuple(found)


def _problem(asked: Asked, stretch: Stretch) -> Problem:
    budgets = asked.spec.scaling.budgets
    return Problem(
        pools=options(asked, stretch.traffic),
        need=dict.fromkeys(ROLES, stretch.traffic.requests_per_s),
        limits=Limits(
            accelerators={ALL_PRODUCTS if one.product == "*" else one.product: one.max for one in budgets.accelerators},
            cost_per_hour=None if budgets.cost_per_hour is None else money(budgets.cost_per_hour),
        ),
    )


def _hardest_first(asked: Asked) -> list[tuple[Stretch, Problem]]:
    """Return the stretches that ask for most, and leave out those that are covered where another one is."""
    rated = [(stretch, _problem(asked, stretch)) for stretch in asked.stretches]
    needs = [(_needed(problem), stretch, problem) for stretch, problem in rated]
    needs.sort(key=lambda one: -sum(one[0]))
    kept: list[tuple[tuple[float, float], Stretch, Problem]] = []
    for one in needs:
        if not any(
            all(mine <= theirs * MARGIN for mine, theirs in zip(one[0], other[0], strict=True)) for other in kept
        ):
            kept.append(one)
    return [(stretch, problem) for _, stretch, problem in kept]


def _quietest(asked: Asked) -> Answer:
    """Return the answer for the stretch with the least to do."""
    rated = [_problem(asked, stretch) for stretch in asked.stretches]
    return solve(min(rated, key=lambda problem: sum(_needed(problem))))


def _needed(problem: Problem) -> tuple[float, float]:
    """Return about how many of the best workers each role needs."""
    best = [max((pool.rates[role].best for pool in problem.pools if role in pool.rates), default=0.0) for role in ROLES]
    prefill, decode = (
        problem.need[role] / rate if rate > 0 else float(problem.need[role] > 0)
        for role, rate in zip(ROLES, best, strict=True)
    )
    return prefill, decode


def _with(problem: Problem, *, fewest: Mapping[str, int], most: Mapping[str, int] | None = None) -> Problem:
    return replace(
        problem,
        pools=tuple(
            replace(pool, fewest=min(pool.most, fewest[pool.name]), most=pool.most if most is None else most[pool.name])
            for pool in problem.pools
        ),
    )


def _workers(pool: str, settled: list[Answer], total: int, quiet: Answer) -> Workers:
    by_role = [next(one.by_role for one in answer.pools if one.pool == pool) for answer in settled]
    prefill, decode = (min(roles.get(role, 0) for roles in by_role) for role in ROLES)
    swing = total - prefill - decode
    needed = quiet.counts().get(pool, 0)
    return Workers(
        pool=pool,
        prefill=prefill,
        decode=decode,
        swing=swing,
        least_swing=min(swing, max(0, needed - prefill - decode)),
    )


def _prices(pools: tuple[Pool, ...]) -> list[float]:
    """Return the price of a worker of each pool; where no pool has one, accelerators are what is to be saved."""
    priced = [pool.name for pool in pools if pool.cost_per_hour is not None]
    if not priced:
        return [float(pool.accelerator.count) for pool in pools]
    if missing := [pool.name for pool in pools if pool.cost_per_hour is None]:
        raise PlanError(
            f"pool {missing[0]}: costPerHour is missing, but pool {priced[0]} has one; give it to all pools or to none"
        )
    return [money(pool.cost_per_hour) for pool in pools if pool.cost_per_hour is not None]
