"""NVIDIA Dynamo's planner from 1.1 on, built from the description of its rules: two loops.

The slow one forecasts the next window's requests and divides them by what an engine does within the objective, at
full load and without a queue: a lower bound. The fast one moves a role by one worker: up if every single engine's
estimated latency is over its objective, down if the others could take over its load at four fifths of it. While any
worker starts, the fast one only looks on.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from swingpool_control import names
from swingpool_control.api.status import FlipRecord, InferenceClusterStatus
from swingpool_control.engine.model import PerformanceModel, decode_step_s, prefill_s, prompt_batch
from swingpool_control.figures import Unknown
from swingpool_control.observation import WorkerObservation
from swingpool_control.simulation.counters import Counters
from swingpool_control.simulation.policies import fleet
from swingpool_control.simulation.policies.fleet import Role
from swingpool_control.simulation.policies.interface import JOIN_SHORTEST_QUEUE, Board, Given, Placing
from swingpool_control.simulation.policies.windows import Increase
from swingpool_control.view import ClusterView

MOST_STEP = 8
"""Replicas by which the slow loop moves a role at once."""
CANDIDATES = 128
"""Batch sizes that it tries."""


class Predictor(StrEnum):
    """How the next window's number of requests is forecast."""

    CONSTANT = "constant"
    KALMAN = "kalman"


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Settings of the planner, by their names there, with the defaults of its documentation."""

    throughput_adjustment_interval_s: float = 180.0
    load_adjustment_interval_s: float = 5.0
    enable_throughput_scaling: bool = True
    enable_load_scaling: bool = True
    predictor: Predictor = Predictor.CONSTANT
    demand_by_admission: bool = True
    """Whether requests are counted as they start (from 1.3 on) or as they complete (before)."""
    max_gpu_budget: int | None = None
    sensitivity: float = 0.8
    load_min_observations: int = 5


class Kalman:
    """Local linear trend of one figure: level and slope."""

    LEVEL_NOISE, TREND_NOISE, OBSERVATION_NOISE, LEAST_POINTS = 1.0, 0.1, 10.0, 5

    def __init__(self) -> None:
        self._level, self._trend = 0.0, 0.0
        self._p = (1e6, 0.0, 1e6)
        self._points = 0
        self._last = 0.0

    def add(self, value: float) -> None:
        """Take the newest window's figure."""
        self._points += 1
        self._last = value
        p_ll, p_lt, p_tt = self._p
        level = self._level + self._trend
        p_ll, p_lt, p_tt = p_ll + 2 * p_lt + p_tt + self.LEVEL_NOISE, p_lt + p_tt, p_tt + self.TREND_NOISE
        gain_l, gain_t = p_ll / (p_ll + self.OBSERVATION_NOISE), p_lt / (p_ll + self.OBSERVATION_NOISE)
        error = value - level
        self._level, self._trend = level + gain_l * error, self._trend + gain_t * error
        self._p = ((1 - gain_l) * p_ll, (1 - gain_l) * p_lt, p_tt - gain_t * p_lt)

    def predict(self) -> float:
        """Return the next window's figure: the last one, until there are enough."""
        return self._last if self._points < self.LEAST_POINTS else max(0.0, self._level + self._trend)


def prefill_engine_rps(model: PerformanceModel, *, isl: float, ttft_s: float) -> float:
    """Return requests per second of one engine at full load within the TTFT, or its best beyond it."""
    length = max(1, round(isl))
    most = max(1, min(model.max_sequences, model.max_batched_tokens // length))
    return _best(
        (b / prefill_s(model, prompt_tokens=b * length), prefill_s(model, prompt_tokens=b * length) <= ttft_s)
        for b in _batches(most)
    )


def decode_engine_rps(model: PerformanceModel, *, isl: float, osl: float, itl_s: float) -> float:
    """Return requests per second of one engine at full load within the ITL, or its best beyond it."""
    context = max(1.0, isl + osl / 2)
    most = max(1, min(model.max_sequences, int(model.kv_capacity_tokens // context)))
    found = []
    for batch in _batches(most):
        step_s = decode_step_s(model, sequences=batch, context_tokens=round(batch * context))
        found.append((batch / (max(1.0, osl) * step_s), step_s <= itl_s))
    return _best(found)


class Planner:
    """Both loops.

    Args:
        given: what it is set up with.
        config: its settings.
        placing: how its front end places requests.
    """

    flips: tuple[FlipRecord, ...] = ()

    def __init__(self, given: Given, *, config: Config = Config(), placing: Placing = JOIN_SHORTEST_QUEUE) -> None:
        self.placing = placing
        roles = fleet.of(given)
        self._prefill, self._decode = roles[names.ROLE_PREFILL], roles[names.ROLE_DECODE]
        self._ttft_s, self._itl_s = fleet.objectives_s(given.spec)
        self._config = config
        self._increase = Increase(config.throughput_adjustment_interval_s)
        self._kalman = Kalman()
        self._lower = {names.ROLE_PREFILL: 1, names.ROLE_DECODE: 1}
        self._shape: tuple[float, float] | None = None
        self._throughput_next_s: float | None = None
        self._load_next_s = 0.0

    def round(self, board: Board, *, now_unix_s: float) -> None:
        """Run each loop that is due, the slow one first."""
        config = self._config
        if self._throughput_next_s is None:
            self._throughput_next_s = now_unix_s + config.throughput_adjustment_interval_s
            self._increase.add(board.counters(), now_s=now_unix_s)
        if now_unix_s >= self._throughput_next_s:
            self._throughput_next_s = now_unix_s + config.throughput_adjustment_interval_s
            seen = self._increase.add(board.counters(), now_s=now_unix_s)
            self._by_throughput(board, seen)
        if config.enable_load_scaling and now_unix_s >= self._load_next_s:
            self._load_next_s = now_unix_s + config.load_adjustment_interval_s
            self._by_load(board)

    # The slow loop

    def _by_throughput(self, board: Board, seen: Counters) -> None:
        if seen.completed:
            self._shape = (seen.prompt_tokens / seen.completed, seen.output_tokens / seen.completed)
        self._kalman.add(seen.started if self._config.demand_by_admission else seen.completed)
        if not self._config.enable_throughput_scaling or self._shape is None:
            return
        demand = self._predicted(seen) / self._config.throughput_adjustment_interval_s
        isl, osl = self._shape
        needed = {
            names.ROLE_PREFILL: demand / prefill_engine_rps(self._prefill.model, isl=isl, ttft_s=self._ttft_s),
            names.ROLE_DECODE: demand / decode_engine_rps(self._decode.model, isl=isl, osl=osl, itl_s=self._itl_s),
        }
        view = board.view(InferenceClusterStatus())
        wanted = {}
        for role in (self._prefill, self._decode):
            now = role.asked(view)
            count = role.clamp(max(1, math.ceil(needed[role.name] - 1e-9)))
            self._lower[role.name] = count
            least = now if self._config.enable_load_scaling else now - MOST_STEP
            wanted[role.name] = min(max(count, least), now + MOST_STEP)
        self._scale(board, view, wanted)

    def _predicted(self, seen: Counters) -> float:
        if self._config.predictor is Predictor.KALMAN:
            return self._kalman.predict()
        return seen.started if self._config.demand_by_admission else seen.completed

    # The fast loop

    def _by_load(self, board: Board) -> None:
        view = board.view(InferenceClusterStatus())
        roles = (self._prefill, self._decode)
        if any(role.asked(view) != role.ready(view) or len(role.seen(view)) != role.asked(view) for role in roles):
            return
        wanted = {role.name: role.asked(view) for role in roles}
        for role in roles:
            engines = role.seen(view)
            served = sum(one.prefills_served + one.decodes_served for one in engines)
            if served < self._config.load_min_observations:
                continue
            if self._over(role, engines, view):
                wanted[role.name] += 1
            elif wanted[role.name] > self._floor(role) and self._could_lose_one(role, engines, view):
                wanted[role.name] -= 1
        self._scale(board, view, wanted)

    def _floor(self, role: Role) -> int:
        return max(1, role.fewest, self._lower[role.name] if self._config.enable_throughput_scaling else 1)

    def _over(self, role: Role, engines: tuple[WorkerObservation, ...], view: ClusterView) -> bool:
        """Whether every engine's estimate is over the objective: a single hot one never counts."""
        estimate = self._estimate(role, view)
        return bool(engines) and all(estimate(engine, 1.0) > self._limit_s(role) for engine in engines)

    def _could_lose_one(self, role: Role, engines: tuple[WorkerObservation, ...], view: ClusterView) -> bool:
        count = len(engines)
        if count < 2:
            return False
        share = count / (count - 1)
        estimate = self._estimate(role, view)
        limit_s = self._limit_s(role) * self._config.sensitivity
        fits = all(_kv(engine) * share < 1.0 for engine in engines)
        return fits and all(estimate(engine, share) < limit_s for engine in engines)

    def _limit_s(self, role: Role) -> float:
        return self._ttft_s if role.name == names.ROLE_PREFILL else self._itl_s

    def _estimate(self, role: Role, view: ClusterView) -> "_Estimate":
        isl = self._shape[0] if self._shape is not None else 0.0
        seen = fleet.observed(view).mean_isl_tokens
        return _Estimate(role, isl if isinstance(seen, Unknown) else seen)

    def _scale(self, board: Board, view: ClusterView, wanted: dict[str, int]) -> None:
        """One write after the other, prefill first; the budget is the ceiling of both together."""
        budget = self._config.max_gpu_budget
        prefill, decode = (role.clamp(wanted[role.name]) for role in (self._prefill, self._decode))
        if budget is not None and prefill + decode > budget:
            prefill = min(prefill, max(1, self._prefill.asked(view), budget - decode))
            decode = min(decode, max(1, budget - prefill))
        board.act(self._prefill.scaled(view, prefill, reason="planner"))
        board.act(self._decode.scaled(view, decode, reason="planner"))


@dataclass(frozen=True, slots=True)
class _Estimate:
    """An engine's latency by the performance model, from what is queued and scheduled on it."""

    role: Role
    isl: float

    def __call__(self, engine: WorkerObservation, share: float) -> float:
        if self.role.name == names.ROLE_PREFILL:
            tokens = engine.pending_prefill_tokens * share + self.isl
            return queued_s(self.role.model, tokens=round(tokens), isl=max(1, round(self.isl)))
        sequences = round(engine.decodes_in_flight * share)
        context = round(_kv(engine) * self.role.model.kv_capacity_tokens * share)
        if not sequences:
            return 0.0
        return decode_step_s(self.role.model, sequences=sequences, context_tokens=context)


def queued_s(model: PerformanceModel, *, tokens: int, isl: int) -> float:
    """Return the seconds of a worker that so many queued prompt tokens take, as prompts of one length in full batches.

    Args:
        model: the worker's performance model.
        tokens: what waits; less than a batch is computed as one prompt.
        isl: length of each prompt, tokens.
    """
    together, batch_s = prompt_batch(model, prompt_tokens=isl)
    batch_tokens = together * isl
    return tokens / batch_tokens * batch_s if tokens >= batch_tokens else prefill_s(model, prompt_tokens=max(1, tokens))


def _kv(engine: WorkerObservation) -> float:
    return 0.0 if isinstance(engine.kv_usage, Unknown) else engine.kv_usage


def _batches(most: int) -> list[int]:
    if most <= CANDIDATES:
        return list(range(1, most + 1))
    return sorted({max(1, round(most * step / CANDIDATES)) for step in range(1, CANDIDATES + 1)})


def _best(rates: Iterable[tuple[float, bool]]) -> float:
    """The best rate within the objective, or the best of all."""
    found = list(rates)
    within = [rate for rate, eligible in found if eligible]
    return max(within or [rate for rate, _ in found])
