"""NVIDIA Dynamo's first planner (0.4 to 1.0), built from the description of its formula.

Every interval it multiplies the interval's averages: requests times length over a profiled throughput, each corrected
by how far the observed latency lies from the profiled one. Two traits are kept: the prefill correction is cut at 1,
so that a queue never adds a prefill worker; and an interval without a valid figure changes nothing, so that an idle
cluster keeps what it has.
"""

import math

from swingpool_control import names
from swingpool_control.api.status import FlipRecord, InferenceClusterStatus
from swingpool_control.engine.model import PerformanceModel, decode_step_s, prefill_s
from swingpool_control.simulation.counters import Counters
from swingpool_control.simulation.policies import fleet
from swingpool_control.simulation.policies.fleet import Role
from swingpool_control.simulation.policies.interface import JOIN_SHORTEST_QUEUE, Board, Given
from swingpool_control.simulation.policies.windows import Increase

INTERVAL_S = 180.0


def prefill_workers(model: PerformanceModel, *, requests_per_s: float, isl: float, ttft_s: float) -> int:
    """Return the prefill workers of the formula.

    Args:
        model: what one worker does.
        requests_per_s: over the interval.
        isl: mean prompt, tokens.
        ttft_s: observed mean TTFT.
    """
    expected_s = prefill_s(model, prompt_tokens=max(1, round(isl)))
    correction = min(1.0, ttft_s / expected_s)
    throughput = isl / expected_s
    return math.ceil(requests_per_s * isl * correction / throughput - 1e-9)


def decode_workers(
    model: PerformanceModel, *, requests_per_s: float, osl: float, context: float, itl_s: float, correction: float
) -> int:
    """Return the decode workers of the formula.

    Args:
        model: what one worker does.
        requests_per_s: over the interval.
        osl: mean answer, tokens.
        context: mean context of a sequence, tokens.
        itl_s: the objective.
        correction: observed over profiled ITL.
    """
    throughput = _throughput(model, context=max(1, round(context)), itl_s=itl_s / correction)
    return math.ceil(requests_per_s * osl / throughput - 1e-9)


def _throughput(model: PerformanceModel, *, context: int, itl_s: float) -> float:
    """Tokens per second in the fullest batch within the ITL; in the emptiest if none is within it."""
    low, high = 1, max(1, min(model.max_sequences, model.kv_capacity_tokens // context))
    while low < high:
        middle = (low + high + 1) // 2
        if decode_step_s(model, sequences=middle, context_tokens=middle * context) <= itl_s:
            low = middle
        else:
            high = middle - 1
    return low / decode_step_s(model, sequences=low, context_tokens=low * context)


class Classic:
    """The formula once an interval.

    Args:
        given: what it is set up with.
        interval_s: between two decisions, over which everything is averaged.
        max_gpu_budget: accelerators of all workers; beyond it prefill shrinks in proportion and decode takes the rest.
    """

    flips: tuple[FlipRecord, ...] = ()
    placing = JOIN_SHORTEST_QUEUE

    def __init__(self, given: Given, *, interval_s: float = INTERVAL_S, max_gpu_budget: int | None = None) -> None:
        roles = fleet.of(given)
        self._prefill, self._decode = roles[names.ROLE_PREFILL], roles[names.ROLE_DECODE]
        _, self._itl_s = fleet.objectives_s(given.spec)
        self._budget = max_gpu_budget
        self._increase = Increase(interval_s)
        self._next_s: float | None = None

    def round(self, board: Board, *, now_unix_s: float) -> None:
        """Decide if an interval is over."""
        if self._next_s is None:
            self._next_s = now_unix_s + self._increase.window_s
            self._increase.add(board.counters(), now_s=now_unix_s)
            return
        if now_unix_s < self._next_s:
            return
        self._next_s = now_unix_s + self._increase.window_s
        seen = self._increase.add(board.counters(), now_s=now_unix_s)
        if not seen.completed or not seen.first_tokens or not seen.gaps:
            return
        view = board.view(InferenceClusterStatus())
        prefill, decode = self._within_budget(*self._workers(seen, max(1, self._decode.ready(view))))
        board.act(self._prefill.scaled(view, prefill, reason="formula"))
        board.act(self._decode.scaled(view, decode, reason="formula"))

    def _workers(self, seen: Counters, decoding: int) -> tuple[int, int]:
        interval_s = self._increase.window_s
        rate = seen.completed / interval_s
        isl, osl = seen.prompt_tokens / seen.completed, seen.output_tokens / seen.completed
        prefill = prefill_workers(
            self._prefill.model, requests_per_s=rate, isl=isl, ttft_s=seen.ttft_s / seen.first_tokens
        )
        context = isl + osl / 2
        each = max(1, round(seen.completed / decoding * (seen.duration_s / seen.completed) / interval_s))
        expected_s = decode_step_s(self._decode.model, sequences=each, context_tokens=round(each * context))
        correction = seen.gaps_s / seen.gaps / expected_s
        decode = decode_workers(
            self._decode.model,
            requests_per_s=rate,
            osl=osl,
            context=context,
            itl_s=self._itl_s,
            correction=correction if correction > 0 else 1.0,
        )
        return max(prefill, 1), max(decode, 1)

    def _within_budget(self, prefill: int, decode: int) -> tuple[int, int]:
        each = (_accelerators(self._prefill), _accelerators(self._decode))
        used = prefill * each[0] + decode * each[1]
        if self._budget is None or used <= self._budget:
            return prefill, decode
        prefill = max(1, round(prefill * self._budget / used))
        return prefill, max(1, round((self._budget - prefill * each[0]) / each[1]))


def _accelerators(role: Role) -> int:
    return role.pools[0].accelerator.count
