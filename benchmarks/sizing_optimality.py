"""Sizing programme against exhaustive search on random small problems.

Every number of workers of every pool in every role is tried, by code that shares nothing with the programme but the
problem's types: a constraint that the programme misunderstands shows as a plan that is broken, or too dear.
"""

import itertools
import random
import sys

import numpy as np
import numpy.typing as npt

from benchmarks.harness import Run, main
from benchmarks.sizing_problems import DECODE, PREFILL, problem
from swingpool_control.sizing.programme import ALL_PRODUCTS, Answer, Problem, solve

Table = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

MOST_PLANS = 400_000
"""Plans that one problem may have, to be searched whole."""

TOLERANCE = 1e-7


class Every:
    """Every plan of a problem: one row for each, one column for each pool and role."""

    def __init__(self, asked: Problem) -> None:
        self.asked = asked
        self.columns = [(pool, role) for pool in asked.pools for role in (PREFILL, DECODE) if role in pool.rates]
        ranges = [range(pool.most - pool.idle + 1) for pool, _ in self.columns]
        self.plans: Table = np.array(list(itertools.product(*ranges)), dtype=np.float64)
        self.counts = {
            pool.name: pool.idle + self.plans[:, [at for at, (one, _) in enumerate(self.columns) if one is pool]].sum(1)
            for pool in asked.pools
        }

    def cost(self) -> Table:
        """Return the objective of every plan."""
        weights, total = self.asked.weights, np.zeros(len(self.plans))
        for at, (pool, role) in enumerate(self.columns):
            kilowatts = pool.watts[role] / 1000
            each = weights.cost * pool.price_per_hour + weights.power * kilowatts
            total += self.plans[:, at] * (each + weights.carbon * kilowatts * pool.carbon_g_per_kwh / 1000)
        for pool in self.asked.pools:
            total += weights.cost * pool.price_per_hour * pool.idle
        return total

    def kept(self) -> Flags:
        """Return whether every plan keeps every constraint."""
        kept = np.ones(len(self.plans), dtype=bool)
        for pool in self.asked.pools:
            kept &= (self.counts[pool.name] >= pool.fewest) & (self.counts[pool.name] <= pool.most)
        kept &= self._budgets()
        for role in (PREFILL, DECODE):
            kept &= self._covers(role, lost=None)
            if self.asked.spare_worker:
                for at, (_, place) in enumerate(self.columns):
                    if place == role:
                        kept &= (self.plans[:, at] == 0) | self._covers(role, lost=at)
        return kept

    def _budgets(self) -> Flags:
        limits = self.asked.limits
        kept = np.ones(len(self.plans), dtype=bool)
        for product, most in limits.accelerators.items():
            each = {p.name: p.accelerators for p in self.asked.pools if product in (ALL_PRODUCTS, p.product)}
            kept &= self._held(each) <= most + TOLERANCE
        if limits.cost_per_hour is not None:
            each_price = {pool.name: pool.price_per_hour for pool in self.asked.pools}
            kept &= self._held(each_price) <= limits.cost_per_hour + TOLERANCE
        if limits.watts is not None:
            each_watts = {pool.name: max(pool.watts.values()) for pool in self.asked.pools}
            kept &= self._held(each_watts) <= limits.watts + TOLERANCE
        return kept

    def _held(self, each: dict[str, int] | dict[str, float]) -> Table:
        """What pools hold at once on the way to every plan."""
        total = np.zeros(len(self.plans))
        for pool in self.asked.pools:
            if pool.name in each:
                count = self.counts[pool.name]
                total += each[pool.name] * np.maximum(count + pool.surge * (count > 0), pool.present)
        return total

    def _covers(self, role: str, *, lost: int | None) -> Flags:
        """Whether a role sustains its need in every plan, without one worker of a column if one is lost."""
        inside = [at for at, (_, place) in enumerate(self.columns) if place == role]
        plans = self.plans.copy()
        if lost is not None:
            plans[:, lost] -= 1
        workers = plans[:, inside].sum(1)
        sustained, held = np.zeros(len(plans)), np.zeros(len(plans))
        for at in inside:
            pool = self.columns[at][0]
            starts = np.array([start for start, _ in pool.rates[role].steps])
            rates = np.array([0.0, *(rate for _, rate in pool.rates[role].steps)])
            sustained += plans[:, at] * rates[np.searchsorted(starts, workers, side="right")]
            held += plans[:, at] * pool.kv_tokens
        need = self.asked.need[role]
        covered: Flags = (workers >= 1) & (sustained >= need * (1 - TOLERANCE))
        if role == DECODE:
            covered &= held >= self.asked.kv_tokens * (1 - TOLERANCE)
        return covered


def measure(run: Run) -> None:
    """Solve random problems both ways."""
    rng = random.Random(run.seed)
    wanted = 60 if run.quick else 500
    wrong = broken = unlike = without = 0
    worst = 0.0
    done = 0
    while done < wanted:
        asked = problem(
            rng, kinds=rng.choice((1, 2, 3)), pools=rng.choice((2, 3, 4)), most=(1, 8), accelerator_limit=48, sites=1
        )
        every = Every(asked) if _plans(asked) <= MOST_PLANS else None
        if every is None:
            continue
        kept = every.kept()
        answer = solve(asked)
        if not kept.any():
            without += 1
            unlike += answer.feasible
            continue
        done += 1
        if not answer.feasible:
            unlike += 1
            continue
        best = float(every.cost()[kept].min())
        difference = abs(answer.objective - best) / max(best, 1e-9)
        worst = max(worst, difference)
        wrong += difference > TOLERANCE * 10
        broken += not _is_kept(every, kept, answer)
        if done % 50 == 0:
            run.say(
                f"{done} problems: {wrong} dearer or cheaper than the best, {broken} broken, {without} without a plan"
            )
    run.figures |= {"problems": done, "problems_without_a_plan": without, "worst_relative_difference": worst}
    run.at_most("plans whose cost is not the exhaustive search's", wrong, 0)
    run.at_most("plans that break a constraint", broken, 0)
    run.at_most("problems called feasible that are not, or the other way round", unlike, 0)


def _plans(asked: Problem) -> int:
    count = 1
    for pool in asked.pools:
        count *= (pool.most - pool.idle + 1) ** len(pool.rates)
    return count


def _is_kept(every: Every, kept: Flags, answer: Answer) -> bool:
    """Whether an answer's plan is among those that keep every constraint."""
    by_pool = {pool.pool: pool.by_role for pool in answer.pools}
    row = np.array([by_pool[pool.name][role] for pool, role in every.columns], dtype=np.float64)
    return bool(kept[(every.plans == row).all(axis=1)].any())


if __name__ == "__main__":
    sys.exit(main("sizing_optimality", measure, takes="about two minutes"))
