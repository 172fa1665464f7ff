"""Which role lacks workers by the queueing model while the other has some to spare: sizing's word to the swing loop.

The swing loop weighs the next seconds, and acts on slight advantages only after long. What lasts for a minute is
weighed here, by the share that so many workers of a role will let be late. Three in prefill may make more prompts
late than nine in decode do answers, though both are as busy: many workers share one queue, and decode is slow only when
it is nearly full. It also says for which role more workers would help nothing: what the next seconds show of it is then
chance, or one worker's trouble, and needs more evidence. What came is looked at for as long as it has been the same
(`steady`): a half minute that was busier than others by chance moves nobody.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from swingpool_control import names
from swingpool_control.figures import Unknown
from swingpool_control.observation import PERCENTILES
from swingpool_control.sizing import objectives, sustained
from swingpool_control.sizing.coming import ComingMemory
from swingpool_control.sizing.demand import Demand
from swingpool_control.sizing.need import Need
from swingpool_control.sizing.pools import PoolFacts
from swingpool_control.sizing.rates import HANDOVER
from swingpool_control.sizing.steady import last, steady
from swingpool_control.sizing.traffic import Traffic
from swingpool_control.swing.guards import ROLES, other, serving
from swingpool_control.view import ClusterView

GAIN = 0.5
"""Share of what the objectives let be late that must be saved for workers to move: less than that mends nothing that a
user asked for, and half a minute shows so much by chance."""

SURE = 1.05
"""What must hold at the least: with so much less the present roles are as bad still, and with so much more others are
as good; more where what came of late are few requests, whose number is chance (`_sure`)."""

SHARE = 0.2
"""Share of what is late now that must be saved: else lateness goes from one role to the other."""

LEAST = 0.0005
"""Share of requests for which one worker more moves with others."""

LASTS_S = 14.0
"""How long it must have been so: two steps."""

TURNED = 0.4
"""Share by which prompts now may be longer or shorter than those: beyond that the mix has turned."""

Counts = Mapping[tuple[str, str], int]
"""Workers by pool and role."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """Workers that should change to a role, and the roles that no worker should change to."""

    to_role: str = ""
    workers: int = 0
    """0 if none should."""
    since_unix_s: float
    """Since when it is so."""
    lasts: bool = False
    """Whether that is long enough to act on it."""
    reason: str = ""
    needless: tuple[str, ...] = ()
    """Roles to which no move would save what is worth one, even if more comes than came of late."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lately:
    """What came of late."""

    need: Need
    """What both roles must sustain for it."""
    over_s: float
    """How long it has been so, as far as chance tells."""


def lately(came: ComingMemory, seen: Demand | Unknown, traffic: Traffic, *, soon: Need | None = None) -> Lately | None:
    """Return what arrived over the last half minute, or for as long as it has been the same.

    None if less is known, or if it is another mix than now. Lengths of answers are known when they end, and over
    minutes: where more is generated than by those, as answers grow longer, that is what decode must sustain.

    Args:
        came: what came.
        seen: what is asked now.
        traffic: its lengths.
        soon: what is sure to come within the next moments: roles are made ready for that, too.
    """
    held = steady(
        came.requests.history.fine,
        came.prompt_tokens.history.fine,
        arrival_scv=traffic.arrival_scv,
        prompt_scv=traffic.lengths.prompt_scv,
    )
    if isinstance(seen, Unknown) or held is None:
        return None
    mean, now = held.prompt_tokens_per_s * seen.requests_per_s, seen.prompt_tokens_per_s * held.requests_per_s
    if abs(mean - now) > TURNED * max(mean, now):
        return None
    prefill_per_s = held.prompt_tokens_per_s / max(1.0, traffic.lengths.mean_prompt_tokens)
    generated_per_s = (last(came.output_tokens.history.fine) or 0.0) / max(1.0, traffic.lengths.mean_output_tokens)
    decode_per_s = max(held.requests_per_s, generated_per_s)
    found = Need(prefill_per_s=prefill_per_s, decode_per_s=decode_per_s, kv_tokens=0.0)
    return Lately(need=found if soon is None else found.at_least(soon), over_s=held.over_s)


def of(
    view: ClusterView,
    facts: tuple[PoolFacts, ...],
    traffic: Traffic,
    came: Lately | None,
    before: Advice | None,
    *,
    now_unix_s: float,
) -> Advice | None:
    """Return which workers should change their role, if any should, and to which none should; None: not known.

    Args:
        view: the cluster.
        facts: facts of its pools.
        traffic: lengths and burstiness of what comes in.
        came: what came of late; None if that is not known.
        before: the answer of the step before.
        now_unix_s: the time.
    """
    counts = _counts(view)
    if came is None or not all(any(its == role and count for (_, its), count in counts.items()) for role in ROLES):
        return None
    most = sum(counts.values())
    sure = _sure(traffic, came)
    fewer = _Late(view, facts, traffic, came.need.scaled(1 / sure), most=most)
    more = _Late(view, facts, traffic, came.need.scaled(sure), most=most)
    now = {role: fewer.share(role, counts) for role in ROLES}
    options = {role: _best(facts, counts, more, role) for role in ROLES}
    stays = sum(more.share(role, counts) for role in ROLES)
    needless = tuple(role for role, (_, shares) in options.items() if not _saves(view, stays, shares))
    moved, then = min(options.values(), key=lambda one: sum(one[1].values()))
    if moved is None or not _saves(view, sum(now.values()), then):
        return Advice(since_unix_s=now_unix_s, needless=needless)
    same = before is not None and before.to_role == moved[0]
    since_unix_s = before.since_unix_s if same and before is not None else now_unix_s
    what = "one worker" if moved[1] == 1 else f"{moved[1]} workers"
    told = {role: f"{now[role]:.1%} of {role}" for role in ROLES}
    return Advice(
        to_role=moved[0],
        workers=moved[1],
        since_unix_s=since_unix_s,
        lasts=now_unix_s - since_unix_s >= LASTS_S,
        needless=needless,
        reason=f"by the last {came.over_s:.0f} s {told[ROLES[0]]} and {told[ROLES[1]]} will be late; with {what} "
        f"moved to {moved[0]} {then[ROLES[0]]:.1%} and {then[ROLES[1]]:.1%}",
    )


def _sure(traffic: Traffic, came: Lately) -> float:
    """Return by what factor what came of late may be off: by one standard deviation of chance."""
    spread = traffic.arrival_scv + traffic.lengths.prompt_scv
    return max(SURE, 1.0 + math.sqrt(spread / max(1.0, came.over_s * came.need.decode_per_s)))


def _saves(view: ClusterView, late: float, then: Mapping[str, float]) -> bool:
    """Whether so much less would be late that it is worth a move."""
    asked = view.spec.objectives
    level = max(PERCENTILES[name] for one in (asked.ttft, asked.itl) for name in objectives.by_percentile(one))
    return sum(then.values()) <= late - max(GAIN * (1.0 - level), SHARE * late)


class _Late:
    """The share that will be late in each role, by its workers."""

    def __init__(
        self, view: ClusterView, facts: tuple[PoolFacts, ...], traffic: Traffic, need: Need, *, most: int
    ) -> None:
        self._facts = facts
        ttft_s, itl_s = (
            min(objectives.by_percentile(one).values()) for one in (view.spec.objectives.ttft, view.spec.objectives.itl)
        )
        self._shares: dict[str, tuple[float, ...]] = {}
        self._unit: dict[str, float] = {}
        for role, rate in need.by_role().items():
            first = next(pool for pool in facts if role in pool.rates)
            model = view.models[first.name]
            coming = traffic.at_rate(rate)
            self._unit[role] = max(1e-9, first.rates[role].best)
            if isinstance(model, Unknown):
                self._shares[role] = (0.0,) * most
            elif role == names.ROLE_PREFILL:
                kept_s = min(sustained.handover_s(model, itl_s=itl_s), HANDOVER * ttft_s)
                self._shares[role] = sustained.late_prefills(
                    model, traffic=coming, ttft_s=ttft_s, handover_s=kept_s, most=most
                )
            else:
                self._shares[role] = sustained.late_decodes(model, traffic=coming, itl_s=itl_s, most=most)

    def share(self, role: str, counts: Counts) -> float:
        """Return the share with these workers; those of other pools count by what they sustain."""
        able = sum(
            counts.get((pool.name, role), 0) * pool.rates[role].best for pool in self._facts if role in pool.rates
        )
        shares = self._shares[role]
        workers = round(able / self._unit[role])
        return shares[min(workers, len(shares)) - 1] if workers > 0 else 1.0


def _best(
    facts: tuple[PoolFacts, ...], counts: Counts, late: _Late, role: str
) -> tuple[tuple[str, int] | None, dict[str, float]]:
    """How many swing workers to give to a role so that the least is late, and the shares then."""
    swings = [pool.name for pool in facts if len(pool.rates) == len(ROLES)]
    now = dict(counts)
    best: tuple[tuple[str, int] | None, dict[str, float]] = (None, {one: late.share(one, counts) for one in ROLES})
    for moved in range(1, sum(counts.get((name, other(role)), 0) for name in swings) + 1):
        giver = next(name for name in swings if now.get((name, other(role)), 0))
        now[giver, other(role)] -= 1
        now[giver, role] = now.get((giver, role), 0) + 1
        if not any(its == other(role) and count for (_, its), count in now.items()):
            break
        shares = {one: late.share(one, now) for one in ROLES}
        if sum(shares.values()) < sum(best[1].values()) - LEAST:
            best = (role, moved), shares
    return best


def _counts(view: ClusterView) -> dict[tuple[str, str], int]:
    """Workers that serve, by pool and role."""
    now = serving(view)
    found: dict[tuple[str, str], int] = {}
    for worker in view.workers:
        if worker.role in (names.ROLE_PREFILL, names.ROLE_DECODE) and worker.uid in now[worker.role]:
            key = worker.pool, worker.role
            found[key] = found.get(key, 0) + 1
    return found
