"""One request's way through the picker: decide, wait if nobody can serve, run the prefill leg, hand over.

No failure of a worker reaches the client from here as long as another worker is there: a failed leg is run on another
prefill worker, then the request is served whole.
"""

import itertools
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import orjson

from swingpool.picker import body as bodies
from swingpool.picker.fleet import Fleet
from swingpool.picker.leg import Computed, Failed, PrefillClient, Refused
from swingpool.picker.replies import Reply, unavailable
from swingpool.picker.requests import Generations
from swingpool.picker.traffic import Arrival, Traffic
from swingpool_control.placement import openai
from swingpool_control.placement.candidates import PlacementRequest
from swingpool_control.placement.place import Hold, Split, Whole, any_order, decode_order, hosts_to_try, place

MOST_LEGS = 3
"""Prefill workers that a request is tried on before it is served whole."""

MOST_HOSTS = 4
"""Workers that Envoy is handed: the choice and one for each of its retries."""

MOST_QUEUED_BYTES = 128 * 1024 * 1024
"""What requests that wait may take of the picker's memory, about."""

_LEAST_QUEUED_BYTES = 16 * 1024
"""What a request takes beside its body."""

log = logging.getLogger(__name__)

Decided = TypeVar("Decided")


@dataclass(frozen=True, slots=True, kw_only=True)
class Incoming:
    """A request, as far as it is read."""

    request_id: str
    path: str
    """Path and query."""
    headers: Mapping[str, str]
    """What the prefill leg passes on."""
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """Let Envoy send the request on."""

    hosts: tuple[str, ...]
    """Where to, in the order of trying."""
    body: bytes | None = None
    """The new body; None leaves the client's."""


@dataclass(slots=True, kw_only=True)
class _Request:
    """A request in the middle of its way."""

    incoming: Incoming
    body: dict[str, Any]
    shape: openai.RequestShape
    arrival: Arrival
    tie: int
    failed: frozenset[str] = frozenset()

    @property
    def placement(self) -> PlacementRequest:
        return PlacementRequest(prompt_tokens=self.arrival.prompt_tokens, whole_because=self.shape.whole_because)


class Flow:
    """Carries requests from arrival to the hand-over to Envoy."""

    def __init__(
        self, fleet: Fleet, legs: PrefillClient, generations: Generations, traffic: Traffic, *, queue_timeout_s: float
    ) -> None:
        self._fleet = fleet
        self._legs = legs
        self._generations = generations
        self._traffic = traffic
        self._queue_timeout_s = queue_timeout_s
        self._ties = itertools.count()
        self._queued_bytes = 0

    async def passed(self, *, body: bytes | None = None, size: int = 0) -> Route | Reply:
        """Choose a worker for a request that is neither split nor counted.

        Args:
            body: the new body; None leaves the client's, if there is one.
            size: the body's bytes, as far as they are held here.
        """
        tie = next(self._ties)
        hosts = await self._queue(lambda: any_order(self._fleet.candidates(), tie=tie) or None, size)
        return Route(hosts=hosts[:MOST_HOSTS], body=body) if hosts else self._no_worker()

    async def carried(self, raw: bytes, *, is_json: bool) -> Route | Reply:
        """Choose a worker for a request of another kind, without what clients may not set."""
        body = bodies.read(raw) if is_json and raw else None
        if isinstance(body, Reply):
            return body
        if isinstance(body, dict) and openai.KV_TRANSFER in body:
            return await self.passed(body=orjson.dumps(openai.decode_leg(body, None)), size=len(raw))
        return await self.passed(size=len(raw))

    async def decided(self, incoming: Incoming, *, chat: bool) -> Route | Reply:
        """Choose workers for a completion, and run its prefill leg."""
        body = bodies.read_object(incoming.body)
        if isinstance(body, Reply):
            return body
        shape = openai.shape_of(body, chat=chat)
        tokens = shape.prompt_tokens + (self._traffic.token_rate.tokens(shape.text_bytes) if shape.text_bytes else 0)
        arrival = self._traffic.arrived(incoming.path.partition("?")[0], tokens)
        request = _Request(incoming=incoming, body=body, shape=shape, arrival=arrival, tie=next(self._ties))
        outcome = await self._serve(request)
        self._traffic.metrics.prompt_tokens.observe(arrival.prompt_tokens)
        return outcome

    async def _serve(self, request: _Request) -> Route | Reply:
        while True:
            placement = await self._queue(lambda: self._placed(request), len(request.incoming.body))
            match placement:
                case None:
                    return self._no_worker()
                case Whole(workers=workers, why=why):
                    log.debug("request %s is served whole: %s", request.incoming.request_id, why)
                    self._traffic.metrics.decisions.labels("whole").inc()
                    return self._hand_over(request, workers, params=None)
                case Split(prefill=prefill):
                    outcome = await self._prefilled(request, prefill)
                    if outcome is not None:
                        return outcome

    def _placed(self, request: _Request) -> Split | Whole | None:
        candidates = self._fleet.candidates()
        placement = place(request.placement, candidates, tie=request.tie, failed=request.failed)
        return None if isinstance(placement, Hold) else placement

    async def _prefilled(self, request: _Request, address: str) -> Route | Reply | None:
        """Run a leg and hand over; return None if the request must be placed anew."""
        worker = self._fleet.get(address)
        if worker is None:
            return None
        started_s = time.monotonic()
        result = await self._legs.run(
            worker,
            request.incoming.path,
            orjson.dumps(openai.prefill_leg(request.body)),
            headers=request.incoming.headers,
            tokens=request.arrival.prompt_tokens,
        )
        metrics = self._traffic.metrics
        metrics.legs.labels(type(result).__name__.lower()).observe(time.monotonic() - started_s)
        match result:
            case Refused(status=status, body=body, content_type=content_type):
                metrics.decisions.labels("refused").inc()
                return Reply(status=status, body=body, content_type=content_type)
            case Failed(why=why, unreachable=unreachable):
                metrics.prefill_retries.inc()
                log.warning("a prefill leg failed on %s: %s", worker.member.pod, why)
                if unreachable:
                    self._fleet.probed(worker, fault=f"it cannot be connected to: {why}")
                failed = request.failed | {address}
                if len(failed) >= MOST_LEGS:
                    failed |= {w.member.address for w in self._fleet.workers()}
                request.failed = frozenset(failed)
                return None
            case Computed(kv_transfer_params=params, prompt_tokens=tokens):
                self._traffic.counted(request.arrival, text_bytes=request.shape.text_bytes, prompt_tokens=tokens)
                if params is None:
                    metrics.no_transfer.inc()
                return self._after_prefill(request, address, params)

    def _after_prefill(self, request: _Request, origin: str, params: dict[str, Any] | None) -> Route | None:
        """Hand over to the decode worker that is best now, not when the prompt was still to be computed."""
        candidates = self._fleet.candidates()
        decode = decode_order(request.placement, candidates, tie=request.tie, without=origin)
        if decode:
            self._traffic.metrics.decisions.labels("split").inc()
            return self._hand_over(request, decode, params=params, origin=origin)
        # Nobody is left to generate but, perhaps, the worker that holds the prompt's cache: let one do all of it.
        request.shape = replace(request.shape, whole_because="no decode worker was left after its prefill")
        return None

    def _hand_over(
        self, request: _Request, workers: tuple[str, ...], *, params: dict[str, Any] | None, origin: str = ""
    ) -> Route:
        worker = self._fleet.get(workers[0])
        if worker is not None:
            self._generations.sent(
                request.incoming.request_id,
                worker,
                context_tokens=request.arrival.prompt_tokens,
                stream=request.shape.stream,
                arrived_unix_s=request.arrival.unix_s,
            )
        unchanged = params is None and openai.KV_TRANSFER not in request.body
        body = None if unchanged else orjson.dumps(openai.decode_leg(request.body, params))
        hosts = hosts_to_try(workers, self._fleet.candidates(), tie=request.tie, most=MOST_HOSTS, origin=origin)
        return Route(hosts=hosts, body=body)

    async def _queue(self, decide: Callable[[], Decided | None], size: int) -> Decided | None:
        """Return a decision as soon as one can be made, None if none could within the queue's time and room."""
        decision = decide()
        size += _LEAST_QUEUED_BYTES
        if decision is not None or self._queued_bytes + size > MOST_QUEUED_BYTES:
            return decision
        traffic = self._traffic
        started_s = time.monotonic()
        self._queued_bytes += size
        traffic.queued += 1
        traffic.metrics.queued.set(traffic.queued)
        try:
            while decision is None:
                left_s = self._queue_timeout_s - (time.monotonic() - started_s)
                if left_s <= 0 or not await self._fleet.changed(timeout_s=left_s):
                    break
                decision = decide()
            return decision
        finally:
            self._queued_bytes -= size
            traffic.queued -= 1
            traffic.metrics.queued.set(traffic.queued)
            traffic.metrics.queue.observe(time.monotonic() - started_s)

    def _no_worker(self) -> Reply:
        self._traffic.metrics.decisions.labels("refused").inc()
        self._traffic.metrics.errors.labels("no_worker").inc()
        return unavailable(
            f"no worker could take the request: none came into rotation within {self._queue_timeout_s:g} s, "
            "or too many requests wait already; try again later"
        )
