"""Whether swing workers hold still when nothing changes, move at once when something does, and follow a slow change.

On the simulated cluster: a stationary load at three levels for six hours each; steps of the mix from prompts to
generation and back; workers that are hot because requests stick to them, as sessions do; and a mix that goes up and
down like a sine every ten minutes. The replicas are fixed, so that only roles change. Workers run by the demo profile,
which is invented: small rates load it.
"""

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from random import Random
from typing import Any

from benchmarks.harness import Run, main
from swingpool_control import names
from swingpool_control.api.v1alpha1 import InferenceClusterSpec
from swingpool_control.engine.profile import built_in
from swingpool_control.simulation.cluster import Simulation
from swingpool_control.simulation.policies import shortest_queue
from swingpool_control.simulation.policies.candidates import Candidate, Placement, PlacementRequest, Split
from swingpool_control.simulation.policies.catalogue import OURS
from swingpool_control.simulation.policies.interface import Given, Placing, Policy
from swingpool_control.simulation.policies.live import Features, Live
from swingpool_control.simulation.result import Result
from swingpool_control.simulation.settings import START_UNIX_S, Settings
from swingpool_control.simulation.traffic import Arrival
from swingpool_control.sizing.capacity import Capacity, Shape, capacity
from swingpool_control.sizing.objectives import mean_itl_s, mean_ttft_s
from swingpool_control.timestamps import unix_seconds

WORKERS = 8
FIXED = {"prefill": 1, "decode": 1, "swing": WORKERS - 2}
PERIOD_S = 1.0
"""Between two decisions."""
SETTLE_S = 120.0
"""Before this nothing counts: swing workers begin as decode workers, whatever the load."""
DWELL_S = 10.0
"""For how long a worker keeps a role at the least: `minRoleDuration`."""
LEVELS = (0.4, 0.65, 0.85)
"""Shares of all workers' capacity that the stationary loads ask for."""
OBJECTIVES = {"ttft": {"p95": "1500ms"}, "itl": {"p95": "60ms"}}
PROMPTS = Shape(isl_tokens=1200, osl_tokens=20)
GENERATION = Shape(isl_tokens=80, osl_tokens=150)
EVEN = Shape(isl_tokens=2000, osl_tokens=260)
"""Asks for about as many prefill as decode workers."""
HOT = 1.0
"""What sticks to the hot worker, over what it does within the objectives: more, and its queue would know no bound and
at last hold up the KV cache of others."""
SINE_S = 600.0
SINE_SHARE = 0.7
FULL = 0.9
"""Share of what the model says that a role does, up to which it is loaded: at all of it many prompts are late."""
STEP_SHARE = 0.75
STEP_EVERY_S = 60.0


Rates = Callable[[float], tuple[float, float]]
"""From a time to the requests per second of both kinds."""


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of request, and the workers by role that one of it per second keeps busy."""

    shape: Shape
    prefill: float
    decode: float

    def rate(self, share: float) -> float:
        """Return the requests per second that ask for a share of all workers."""
        return share * WORKERS / (self.prefill + self.decode)


def measure(run: Run) -> None:
    _steps(run)
    _hot(run)
    _sine(run)
    _stationary(run)  # which takes longest


def _stationary(run: Run) -> None:
    hours = 1 / 6 if run.quick else 6.0
    kind = _kind(EVEN)
    ends_s = SETTLE_S + 3600.0 * hours
    per_hour = []
    for level in LEVELS:
        made = run.part(
            f"stationary {level:g}",
            partial(_held, _poisson(_steady(kind.rate(level)), (kind, kind), ends_s, run.seed)),
        )
        per_hour.append(made["flips"] / hours)
        run.say(
            f"stationary, load {level:g}, {hours:.2g} h: {made['flips']} flips after the first {SETTLE_S:.0f} s, "
            f"{made['attainment']:.1%} met TTFT and ITL"
        )
        run.figures[f"stationary_{level:g}"] = {
            "hours": round(hours, 2),
            "requests_per_s": round(kind.rate(level), 2),
            **made,
        }
    run.at_most("flips per hour under a stationary load, the worst of three", max(per_hour), 1.0)


def _held(arrivals: Iterator[Arrival], policy: Policy = OURS) -> dict[str, Any]:
    """Return the flips of a run after its first minutes, of which there should be none, and what met its objectives."""
    result = _simulate(arrivals, policy)
    flips = [at_s for at_s, _ in _flips(result) if at_s >= SETTLE_S]
    return {"flips": len(flips), "attainment": round(result.attainment or 0.0, 4)}


def _steps(run: Run) -> None:
    steps = 4 if run.quick else 20
    kinds = (_kind(PROMPTS), _kind(GENERATION))
    turns = [SETTLE_S + STEP_EVERY_S * number for number in range(steps)]

    def rates(at_s: float) -> tuple[float, float]:
        turned = sum(turn <= at_s for turn in turns)
        return (kinds[0].rate(STEP_SHARE), 0.0) if turned % 2 == 0 else (0.0, kinds[1].rate(STEP_SHARE))

    for name, features in (("swing alone", Features(deflection=False)), ("with deflection", Features())):
        policy = Policy(name=name, about="", make=partial(Live, features=features), swings=True)

        def stepped(policy: Policy = policy) -> dict[str, Any]:
            result = _simulate(_poisson(rates, kinds, turns[-1] + STEP_EVERY_S, run.seed), policy)
            return {
                "first_flip_at_observation": _delays(_flips(result), turns),
                "flips": len(result.flips),
                "attainment": round(result.attainment or 0.0, 4),
            }

        made = run.part(f"steps {name}", stepped)
        delays = made["first_flip_at_observation"]
        run.say(
            f"steps of the mix, {steps}, {name}: first flip at observation {delays} after each, "
            f"{made['flips']} flips in all, {made['attainment']:.1%} met TTFT and ITL"
        )
        run.figures[f"steps_{name.replace(' ', '_')}"] = made
        if not features.deflection:  # where decode workers compute prompts, a step need leave no role short
            run.at_most("periods from a step to the decision, the worst", max(delays), 2.0)


def _delays(flips: list[tuple[float, str]], turns: Sequence[float]) -> list[float]:
    """Return at which observation after each turn the first flip was decided that it asks for."""
    delays = []
    for number, turn in enumerate(turns):
        wanted = names.ROLE_DECODE if number % 2 == 0 else names.ROLE_PREFILL
        first_s = next((at_s for at_s, role in flips if at_s > turn and role == wanted), math.inf)
        delays.append((first_s - turn) / PERIOD_S)
    return delays


def _hot(run: Run) -> None:
    ends_s = 300.0 if run.quick else 3600.0
    kind = _kind(EVEN)
    for role in (names.ROLE_PREFILL, names.ROLE_DECODE):
        share = HOT / (
            0.5 * WORKERS * (kind.prefill if role == "prefill" else kind.decode) / (kind.prefill + kind.decode)
        )
        sticky = Policy(name="sticky", about="", make=partial(_Sticky, role=role, share=share))
        made = run.part(
            f"hot {role}",
            partial(_held, _poisson(_steady(kind.rate(0.5)), (kind, kind), ends_s, run.seed), sticky),
        )
        run.say(f"a hot {role} worker: {made['flips']} flips, {made['attainment']:.1%} met TTFT and ITL")
        run.figures[f"hot_{role}"] = made
        run.at_most(f"flips for a hot {role} worker", made["flips"], 0.0)


def _sine(run: Run) -> None:
    periods = 2 if run.quick else 12
    kinds = (_kind(PROMPTS), _kind(GENERATION))
    ends_s = SINE_S * periods

    def rates(at_s: float) -> tuple[float, float]:
        share = 0.5 + 0.5 * math.sin(2 * math.pi * at_s / SINE_S)
        return share * kinds[0].rate(SINE_SHARE), (1.0 - share) * kinds[1].rate(SINE_SHARE)

    def followed() -> dict[str, Any]:
        result = _simulate(_poisson(rates, kinds, ends_s, run.seed))
        flips = [flip for flip in _flips(result) if flip[0] >= SINE_S]
        reversals = sum(
            one_role != two_role and two_s - one_s < 2 * DWELL_S
            for (one_s, one_role), (two_s, two_role) in pairwise(flips)
        )
        return {
            "periods_counted": periods - 1,
            "flips": len(flips),
            "reversals": reversals,
            "attainment": round(result.attainment or 0.0, 4),
        }

    made = run.part("sine", followed)
    least = _fewest_flips([rates(float(at_s)) for at_s in range(round(SINE_S), round(ends_s))], kinds)
    run.say(
        f"sine of {SINE_S:.0f} s, {periods} periods: {made['flips']} flips after the first, {least} are the fewest "
        f"that follow it; {made['reversals']} reversals within {2 * DWELL_S:.0f} s, {made['attainment']:.1%} met TTFT "
        "and ITL"
    )
    run.figures["sine"] = made | {"fewest_flips": least}
    run.at_most("flips under a sine over the fewest that follow it", made["flips"] / max(1, least), 1.5)
    run.at_most("reversals under a sine within twice the dwell time", made["reversals"], 0.0)
    run.at_least("attainment under a sine", made["attainment"], 0.95)


def _fewest_flips(rates: Sequence[tuple[float, float]], kinds: tuple[Kind, Kind]) -> int:
    """Return the fewest flips with which no role is ever loaded beyond `FULL`: by who knows what comes."""
    least, most = FIXED["prefill"], WORKERS - FIXED["decode"]
    ways: dict[int, int] = dict.fromkeys(range(least, most + 1), 0)
    for one, two in rates:
        prefill = (one * kinds[0].prefill + two * kinds[1].prefill) / FULL
        decode = (one * kinds[0].decode + two * kinds[1].decode) / FULL
        able = [split for split in range(least, most + 1) if split >= prefill and WORKERS - split >= decode]
        if able:
            ways = {split: min(count + abs(split - before) for before, count in ways.items()) for split in able}
    return min(ways.values())


class _Sticky(Live):
    """Ours, but a share of all requests insists on one worker of a role."""

    def __init__(self, given: Given, *, role: str, share: float) -> None:
        super().__init__(given, Features())
        self._role, self._share = role, share
        self.placing = Placing(place=self._place, decode_order=self._decode_order)

    def _sticks(self, tie: int, role: str) -> bool:
        return role == self._role and Random(tie).random() < self._share

    def _favourite(self, candidates: Sequence[Candidate]) -> str:
        pool = f"{self._role}-"
        able = [one.worker for one in candidates if one.in_rotation and one.worker.startswith(pool)]
        return min(able, default="")

    def _place(
        self,
        request: PlacementRequest,
        candidates: Sequence[Candidate],
        *,
        tie: int,
        failed: frozenset[str] = frozenset(),
    ) -> Placement:
        placed = shortest_queue.place(request, candidates, tie=tie, failed=failed)
        favourite = self._favourite(candidates)
        if isinstance(placed, Split) and favourite and self._sticks(tie, names.ROLE_PREFILL):
            return Split(prefill=favourite, decode=placed.decode, why="it sticks")
        return placed

    def _decode_order(
        self, request: PlacementRequest, candidates: Sequence[Candidate], *, tie: int, without: str = ""
    ) -> tuple[str, ...]:
        order = shortest_queue.decode_order(request, candidates, tie=tie, without=without)
        favourite = self._favourite(candidates)
        if favourite in order and self._sticks(tie, names.ROLE_DECODE):
            return (favourite, *(worker for worker in order if worker != favourite))
        return order


def _flips(result: Result) -> list[tuple[float, str]]:
    """Return when each flip was decided, and to which role, oldest first."""
    return sorted((unix_seconds(flip.decided_at) - START_UNIX_S, flip.to_role) for flip in result.flips)


def _kind(shape: Shape) -> Kind:
    able = _capacity(shape)
    return Kind(shape, shape.isl_tokens / able.prefill_tokens_per_s, shape.osl_tokens / able.decode_tokens_per_s)


def _capacity(shape: Shape) -> Capacity:
    objectives = _spec().objectives
    return capacity(built_in("demo").model(), shape=shape, ttft_s=mean_ttft_s(objectives), itl_s=mean_itl_s(objectives))


def _steady(rate: float) -> Rates:
    return lambda _: (rate, 0.0)


def _poisson(rates: Rates, kinds: tuple[Kind, Kind], ends_s: float, seed: int) -> Iterator[Arrival]:
    """Requests of two kinds at rates that may change, by thinning; lengths scatter by half of their mean."""
    random = Random(f"{seed} {ends_s}")
    most = sum(max(rates(ends_s * part / 997)[which] for part in range(998)) for which in (0, 1))
    at_s = 0.0
    while True:
        at_s += random.expovariate(most)
        if at_s >= ends_s:
            return
        first, second = rates(at_s)
        drawn = random.random() * most
        if drawn < first + second:
            shape = kinds[0 if drawn < first else 1].shape
            prompt, output = (
                max(1, round(mean * random.uniform(0.5, 1.5))) for mean in (shape.isl_tokens, shape.osl_tokens)
            )
            yield Arrival(at_s, prompt, output)


def _spec() -> InferenceClusterSpec:
    return InferenceClusterSpec.model_validate(
        {
            "model": {"name": "demo"},
            "engine": {"type": "Simulated"},
            "objectives": OBJECTIVES,
            "profile": {"builtIn": "demo"},
            "scaling": {"stabilization": {"minRoleDuration": f"{DWELL_S:.0f}s"}},
            "pools": [
                {"name": name, "role": name.capitalize(), "replicas": {"mode": "Fixed", "count": count}}
                for name, count in FIXED.items()
            ],
        }
    )


def _simulate(arrivals: Iterator[Arrival], policy: Policy = OURS) -> Result:
    settings = Settings(policy=policy, prefix_caching=False, swing_period_s=PERIOD_S)
    return Simulation(_spec(), arrivals, settings, failures=Random(0)).run()


if __name__ == "__main__":
    sys.exit(main("swing_stability", measure, takes="about a quarter of an hour"))
