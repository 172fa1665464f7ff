"""A schedule that knows every request to come: what nobody can have, and what others are measured against.

It knows when how much work arrives and starts workers one start-up time before they are needed; these times are the
same for everyone. A worker is let go when it will not be needed before it could be started again. Swing workers change
their role at once, where there are such, and go on with what they have begun.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from swingpool_control import names
from swingpool_control.actions import PatchWorker, SetReplicas
from swingpool_control.api.status import FlipRecord, InferenceClusterStatus
from swingpool_control.api.v1alpha1 import PoolRole
from swingpool_control.engine.model import PerformanceModel, decode_step_s, prefill_s, prompt_batch
from swingpool_control.simulation.policies import fleet
from swingpool_control.simulation.policies.interface import Board, Given, Placing, PolicyError
from swingpool_control.simulation.traffic import Arrival
from swingpool_control.view import ClusterView, WorkerView

BIN_S = 20.0
"""Time for which a number of workers is chosen: shorter, and each lull is followed by a rush."""

MOST = 1_000
"""Workers that are tried; more do not help a prompt that takes too long alone."""

LATE = 0.02
"""Share of a bin's prompts that may wait longer than planned."""

MARGIN_S = 3.0
"""How much earlier than needed: pods are made, and seen, with a delay."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """How full workers are planned."""

    wait: float = 0.5
    """Share of the TTFT objective, less the prompt's own time, that a prompt may wait."""
    decode: float = 0.9
    """Share of a decode worker's token rate."""


@dataclass(frozen=True, slots=True)
class Need:
    """Workers that each role needs, by bin of time."""

    prefill: tuple[int, ...]
    decode: tuple[int, ...]

    def over(self, since_s: float, until_s: float) -> tuple[int, int, int]:
        """Return the most of prefill, of decode, and of both together, in a stretch of time."""
        first = max(0, int(since_s // BIN_S))
        last = max(first + 1, math.ceil(until_s / BIN_S))
        pairs = list(zip(self.prefill[first:last], self.decode[first:last], strict=True)) or [(1, 1)]
        return max(p for p, _ in pairs), max(d for _, d in pairs), max(p + d for p, d in pairs)


def need(
    arrivals: Iterable[Arrival],
    *,
    prefill: PerformanceModel,
    decode: PerformanceModel,
    objectives_s: tuple[float, float],
    load: Load = Load(),
) -> Need:
    """Return how many workers each role needs when.

    Prefill: the fewest in each bin with which nobody waits too long, the queue of the bin before included; work is
    divided between them without loss. Decode: each answer's tokens are spread from its arrival on over the time that
    they take at the objective; a worker does as many per second as its largest batch within the objective.

    Args:
        arrivals: all requests, in their order.
        prefill: what a prefill worker does.
        decode: what a decode worker does.
        objectives_s: TTFT and ITL.
        load: how full workers are planned.
    """
    ttft_s, itl_s = objectives_s
    bins: list[list[Arrival]] = []
    tokens: list[float] = []
    contexts: list[float] = []
    for one in arrivals:
        begin = int(one.at_s // BIN_S)
        end = int((one.at_s + one.output_tokens * itl_s) // BIN_S)
        bins.extend([] for _ in range(end + 1 - len(bins)))
        for values in (tokens, contexts):
            values.extend([0.0] * (end + 1 - len(values)))
        bins[begin].append(one)
        each = one.output_tokens / (end - begin + 1)
        for index in range(begin, end + 1):
            tokens[index] += each
            contexts[index] += each * (one.prompt_tokens + one.output_tokens / 2)
    queue = _Queue(prefill, ttft_s=ttft_s, wait=load.wait)
    rates = _Rates(decode, itl_s)
    return Need(
        prefill=tuple(queue.workers(held, until_s=(number + 1) * BIN_S) for number, held in enumerate(bins)),
        decode=tuple(
            max(1, math.ceil(count / BIN_S / load.decode / rates.of(total / count))) if count else 1
            for count, total in zip(tokens, contexts, strict=True)
        ),
    )


class _Queue:
    """The prompts' queue, served by any number of workers."""

    def __init__(self, model: PerformanceModel, *, ttft_s: float, wait: float) -> None:
        self._model = model
        self._ttft_s = ttft_s
        self._wait = wait
        self._times: dict[int, tuple[float, float]] = {}
        """By length: seconds of a prompt alone, and its share of a worker's time among as many like it as fit."""
        self._left_s = 0.0
        """Work that waits, in seconds of one worker."""
        self._at_s = 0.0

    def workers(self, arrivals: list[Arrival], *, until_s: float) -> int:
        """Return the fewest workers for a bin, and go on to its end with them."""
        count = 1
        while (left_s := self._served(arrivals, count, until_s)) is None:
            count += 1
        self._left_s, self._at_s = left_s, until_s
        return count

    def _served(self, arrivals: list[Arrival], count: int, until_s: float) -> float | None:
        """The work that is left at the bin's end; None if more than a few wait too long, or too much is left."""
        left_s, at_s, late = self._left_s, self._at_s, 0
        for one in arrivals:
            left_s = max(0.0, left_s - count * (one.at_s - at_s))
            at_s = one.at_s
            alone_s, shared_s = self._time(one.prompt_tokens)
            if alone_s < self._ttft_s:
                late += left_s / count > self._wait * (self._ttft_s - alone_s)
            left_s += shared_s
        left_s = max(0.0, left_s - count * (until_s - at_s))
        enough = late <= LATE * len(arrivals) and left_s / count <= self._wait * self._ttft_s
        return left_s if enough or count >= MOST else None

    def _time(self, tokens: int) -> tuple[float, float]:
        if tokens not in self._times:
            alone_s = prefill_s(self._model, prompt_tokens=tokens) + self._model.transfer_s(tokens=tokens)
            together, batch_s = prompt_batch(self._model, prompt_tokens=tokens)
            self._times[tokens] = (alone_s, batch_s / together)
        return self._times[tokens]


class _Rates:
    """Tokens per second of one worker in its largest batch within the objective, by context."""

    def __init__(self, model: PerformanceModel, itl_s: float) -> None:
        self._model = model
        self._itl_s = itl_s
        self._known: dict[int, float] = {}

    def of(self, context: float) -> float:
        tokens = max(16, 16 * round(context / 16))
        if tokens not in self._known:
            self._known[tokens] = self._found(tokens)
        return self._known[tokens]

    def _found(self, context: int) -> float:
        low, high = 1, max(1, min(self._model.max_sequences, self._model.kv_capacity_tokens // context))
        while low < high:
            middle = (low + high + 1) // 2
            if self._step_s(middle, context) <= self._itl_s:
                low = middle
            else:
                high = middle - 1
        return low / self._step_s(low, context)

    def _step_s(self, sequences: int, context: int) -> float:
        return decode_step_s(self._model, sequences=sequences, context_tokens=sequences * context)


class Clairvoyant:
    """The schedule at work.

    Args:
        given: what it is set up with, the future included.
        load: how full workers are planned.

    Raises:
        PolicyError: it is not told the future, or a role has no pool.
    """

    flips: tuple[FlipRecord, ...] = ()
    placing = Placing(late_binding=True, deflection=True)
    """As ours: what is measured against it is the schedule."""

    def __init__(self, given: Given, *, load: Load = Load()) -> None:
        if given.future is None:
            raise PolicyError("it must be told the future")
        self._pools = {kind: tuple(pool for pool in given.spec.pools if pool.role is kind) for kind in PoolRole}
        prefill, decode = (
            next((pool for pool in (*self._pools[kind], *self._pools[PoolRole.SWING])), None)
            for kind in (PoolRole.PREFILL, PoolRole.DECODE)
        )
        if prefill is None or decode is None:
            raise PolicyError("a role has no pool: add one")
        self._startup_s = max(given.startup_s.values())
        self._need = need(
            given.future(),
            prefill=given.models[prefill.name],
            decode=given.models[decode.name],
            objectives_s=fleet.objectives_s(given.spec),
            load=load,
        )
        self._begun_unix_s: float | None = None

    def round(self, board: Board, *, now_unix_s: float) -> None:
        """Ask for the workers that will be needed when they could be there, and give roles for now."""
        if self._begun_unix_s is None:
            self._begun_unix_s = now_unix_s
        now_s = now_unix_s - self._begun_unix_s
        view = board.view(InferenceClusterStatus())
        prefill, decode, together = self._need.over(now_s, now_s + self._startup_s + MARGIN_S)
        board.act(self._resized(view, prefill, decode, together))
        swing = {pool.name for pool in self._pools[PoolRole.SWING]}
        if swing:
            prefill, decode, _ = self._need.over(now_s, now_s + MARGIN_S)
            board.act(self._roles(board.view(InferenceClusterStatus()), swing, prefill, decode))

    def _resized(self, view: ClusterView, prefill: int, decode: int, together: int) -> tuple[SetReplicas, ...]:
        now = {state.pool: state.replicas for state in view.pools}
        wanted: dict[str, int] = {}
        if self._pools[PoolRole.SWING]:
            for kind in (PoolRole.PREFILL, PoolRole.DECODE):
                wanted |= fleet.distributed(self._pools[kind], 0)
            wanted |= fleet.distributed(self._pools[PoolRole.SWING], together - sum(wanted.values()))
        else:
            wanted |= fleet.distributed(self._pools[PoolRole.PREFILL], prefill)
            wanted |= fleet.distributed(self._pools[PoolRole.DECODE], decode)
        return tuple(
            SetReplicas(pool=name, replicas=count, reason="it will be needed")
            for name, count in wanted.items()
            if count != now[name]
        )

    def _roles(self, view: ClusterView, swing: set[str], prefill: int, decode: int) -> tuple[PatchWorker, ...]:
        """Give swing workers the roles that are needed now; the least busy of the other role change first.

        Where there are too few for both roles, each has its share.
        """
        ready = [worker for worker in view.workers if worker.ready and not worker.deleting]
        wanted = min(prefill, round(len(ready) * prefill / (prefill + decode)))
        held = {one.pod: one.prefills_in_flight + one.decodes_in_flight for one in fleet.observed(view).workers}
        by_role: Mapping[str, list[WorkerView]] = {
            role: sorted(
                (worker for worker in ready if worker.role == role),
                key=lambda worker: (worker.pool not in swing, held.get(worker.pod, 0), worker.pod),
            )
            for role in (names.ROLE_PREFILL, names.ROLE_DECODE)
        }
        missing = wanted - len(by_role[names.ROLE_PREFILL])
        source, target = (
            (names.ROLE_DECODE, names.ROLE_PREFILL) if missing > 0 else (names.ROLE_PREFILL, names.ROLE_DECODE)
        )
        movable = [worker for worker in by_role[source] if worker.pool in swing]
        most = max(0, len(by_role[source]) - 1)
        return tuple(
            PatchWorker(
                pod=worker.pod,
                uid=worker.uid,
                expected_role=source,
                labels={names.LABEL_ROLE: target},
                reason="it will be needed",
            )
            for worker in movable[: min(abs(missing), most)]
        )
