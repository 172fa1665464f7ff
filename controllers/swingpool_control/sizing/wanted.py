"""How many workers each pool shall have: up at once by as much as is needed, down slowly, never on unknown figures.

1. What is asked now is moved into the pools' bounds, as far as budgets allow (`allocate.within_bounds`).
2. If that does not sustain what arrives and what waits, the programme adds the workers that do so for the least, all in
   one step. Workers that start already count as if they served; while some do, what lies within the dead band adds
   none: what is expected when they are ready varies from look to look.
3. The programme says which of them would be enough for what arrives, with the dead band on top; the pools shrink to the
   most that was enough at any moment of the scale-down window, if that covers what waits, too, and nothing starts.
   Where one moment's workers would have been enough at every other, those are it.
4. Where a budget was lowered under what runs, the dearest go (`allocate.trim`).
"""

from collections.abc import Mapping
from dataclasses import dataclass

from swingpool_control.api.quantities import seconds
from swingpool_control.api.scaling import Scaling
from swingpool_control.sizing import allocate, asked, budget, stabilize
from swingpool_control.sizing.budget import Bound
from swingpool_control.sizing.memory import Lower
from swingpool_control.sizing.need import Need
from swingpool_control.sizing.pools import PoolFacts
from swingpool_control.sizing.programme import Answer, Problem, solve, split, totals
from swingpool_control.sizing.traffic import Lengths

BOUNDS = ("AcceleratorBudget", "CostBudget", "PowerBudget", "MaxReplicas", "NoCapacity", "NoPool", "Unreachable")
"""Codes of constraints that keep a plan from more workers, as against needs that it does not cover."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Workers by pool."""

    counts: dict[str, int]
    bound: Bound | None
    """What kept them from covering the need, if anything."""
    lower: tuple[Lower, ...]
    """What was enough, over the scale-down window."""


def decide(
    facts: tuple[PoolFacts, ...],
    scaling: Scaling,
    *,
    now: Need,
    lasting: Need | None,
    lower: tuple[Lower, ...],
    now_unix_s: float,
    lengths: Lengths | None = None,
) -> Wanted:
    """Return how many workers each pool shall have; see the module's docstring for the rule.

    Args:
        facts: facts of all pools.
        scaling: budgets and stabilization.
        now: what must be sustained now, what waits included.
        lasting: what arrives; None if that is not known: then nothing goes down.
        lower: what was enough before.
        now_unix_s: the time.
        lengths: of the requests; None if they are not known.
    """
    bounded = allocate.within_bounds(facts, scaling.budgets)
    band = 1 + scaling.stabilization.dead_band_percent / 100
    grown, bound = _grown(facts, bounded.counts, now, scaling)
    if bound is None and any(pool.warming for pool in facts) and _nearly(facts, bounded.counts, now, band, scaling):
        grown = dict(bounded.counts)
    enough = dict(grown) if lasting is None else _enough(facts, grown, lasting.scaled(band), scaling)
    window_s = seconds(scaling.stabilization.scale_down_window)
    lower = stabilize.remember(lower, _entry(enough, lasting, band, lengths, now_unix_s), window_s=window_s)
    floor: Mapping[str, int] | None = stabilize.fewest(lower, window_s=window_s, now_unix_s=now_unix_s)
    if floor is not None and lengths is not None:
        floor = _at_any_moment(facts, lower, floor, lengths, scaling)
    counts = grown
    if floor is not None and grown == bounded.counts and not any(pool.warming for pool in facts):
        counts = {name: min(count, floor.get(name, count)) for name, count in grown.items()}
        if counts != grown and not covers(asked.as_is(facts, counts, now.scaled(band), scaling), counts):
            still = _enough(facts, grown, now.scaled(band), scaling)
            counts = {name: max(count, still[name]) for name, count in counts.items()}
    # Others give way for a pool that may not be without its fewest workers; it gets them when theirs have ended.
    fewest = {pool.name: max(counts[pool.name], min(pool.fewest, pool.most)) for pool in facts}
    trimmed = allocate.trim(facts, fewest, asked.as_is(facts, fewest, now, scaling), scaling.budgets)
    counts = {name: min(count, trimmed.counts[name]) for name, count in counts.items()}
    return Wanted(counts=counts, bound=bound or bounded.bound or trimmed.bound, lower=lower)


def _grown(
    facts: tuple[PoolFacts, ...], counts: Mapping[str, int], need: Need, scaling: Scaling
) -> tuple[dict[str, int], Bound | None]:
    """Workers with which the need is covered, never fewer of any pool; and what kept them from more."""
    problem = asked.to_grow(facts, counts, need, scaling)
    if covers(problem, counts) or budget.broken(scaling.budgets, facts, counts) is not None:
        return dict(counts), None
    answer = solve(problem)
    found = {name: max(count, counts[name]) for name, count in answer.counts().items()}
    return found, None if answer.feasible else _bound(answer)


def _nearly(facts: tuple[PoolFacts, ...], counts: Mapping[str, int], need: Need, band: float, scaling: Scaling) -> bool:
    """Tell whether the need is covered but for the dead band."""
    return covers(asked.to_grow(facts, counts, need.scaled(1 / band), scaling), counts)


def _enough(facts: tuple[PoolFacts, ...], counts: Mapping[str, int], need: Need, scaling: Scaling) -> dict[str, int]:
    """The fewest workers, never more of any pool, that cover the need; all of them if they do not."""
    problem = asked.to_shrink(facts, counts, need, scaling)
    fewer = ({**counts, pool.name: counts[pool.name] - 1} for pool in problem.pools if counts[pool.name] > pool.fewest)
    if not any(covers(problem, {name: min(one[name], _most(problem, name)) for name in one}) for one in fewer):
        return dict(counts)
    answer = solve(problem)
    return (
        {name: min(count, counts[name]) for name, count in answer.counts().items()} if answer.feasible else dict(counts)
    )


def _entry(
    enough: Mapping[str, int], lasting: Need | None, band: float, lengths: Lengths | None, now_unix_s: float
) -> Lower:
    workers = tuple(sorted(enough.items()))
    if lasting is None or lengths is None:
        return Lower(at_unix_s=now_unix_s, workers=workers)
    return Lower(
        at_unix_s=now_unix_s,
        workers=workers,
        prompt_tokens_per_s=lasting.prefill_per_s * band * lengths.mean_prompt_tokens,
        output_tokens_per_s=lasting.decode_per_s * band * lengths.mean_output_tokens,
    )


def _at_any_moment(
    facts: tuple[PoolFacts, ...], lower: tuple[Lower, ...], most: Mapping[str, int], lengths: Lengths, scaling: Scaling
) -> Mapping[str, int]:
    """The fewest workers of one moment that were enough at every other; the most of each pool if none were.

    The programme gives one need to these pools and a like one to those, so the most of each pool is too much.
    """
    needs = [_need(one, lengths) for one in lower]
    if any(one is None for one in needs):
        return most
    known = sorted(dict.fromkeys(filter(None, needs)), key=lambda one: -(one.prefill_per_s + one.decode_per_s))
    for workers in sorted({one.workers for one in lower}, key=lambda one: (sum(count for _, count in one), one)):
        counts = {pool.name: dict(workers).get(pool.name, most.get(pool.name, pool.asked)) for pool in facts}
        if all(covers(asked.as_is(facts, counts, one, scaling), counts) for one in known):
            return counts
    return most


def _need(entry: Lower, lengths: Lengths) -> Need | None:
    """What an entry was enough for, in requests of the present lengths."""
    if entry.prompt_tokens_per_s is None or entry.output_tokens_per_s is None:
        return None
    return Need(
        prefill_per_s=entry.prompt_tokens_per_s / max(1.0, lengths.mean_prompt_tokens),
        decode_per_s=entry.output_tokens_per_s / max(1.0, lengths.mean_output_tokens),
        kv_tokens=0.0,
    )


def covers(problem: Problem, counts: Mapping[str, int]) -> bool:
    """Tell whether so many workers, split over the roles as well as it goes, sustain what is needed."""
    return not any(one.code not in BOUNDS for one in totals.broken(problem, split(problem, counts)))


def _most(problem: Problem, name: str) -> int:
    return next(pool.most for pool in problem.pools if pool.name == name)


def _bound(answer: Answer) -> Bound:
    first = next((one for one in answer.violated if one.code in BOUNDS), answer.violated[0])
    return Bound(code=first.code, message=first.message)
