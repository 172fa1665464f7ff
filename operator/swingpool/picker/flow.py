"""One request's way through the picker: wait for its placement, run the prefill leg, hand over.

No failure of a worker reaches the client from here as long as another worker is there: a failed leg is run on another
prefill worker, then the request is served whole; so is one whose leg is refused.
"""

import asyncio
import itertools
import logging
import time
from collections.abc import Mapping
from functools import partial
from typing import Any

import orjson

from swingpool.picker import body as bodies
from swingpool.picker.desk import Desk
from swingpool.picker.fleet import Fleet
from swingpool.picker.handover import Incoming, Route
from swingpool.picker.journal import Entry, Journal
from swingpool.picker.leg import Computed, Failed, LegResult, PrefillClient, Refused
from swingpool.picker.replies import Reply, overloaded, unavailable
from swingpool.picker.request_log import Note, RequestLog
from swingpool.picker.requests import Generations
from swingpool.picker.tokens import Tokens
from swingpool.picker.tracing import Tracer
from swingpool.picker.traffic import Arrival, Traffic
from swingpool_control import names
from swingpool_control.placement import openai
from swingpool_control.placement.account import Account, Leg
from swingpool_control.placement.overdue import second_try_after_s
from swingpool_control.placement.overload import refusal
from swingpool_control.placement.prompts import CHUNK_BYTES, chain_of
from swingpool_control.placement.ticket import Ticket

MOST_LEGS = 3
"""Prefill workers that a request is tried on before it is served whole."""

MOST_HOSTS = 4
"""Workers that Envoy is handed: the choice and one for each of its retries."""

MOST_QUEUED_BYTES = 128 * 1024 * 1024
"""What requests that wait may take of the picker's memory, about."""

NEARLY_DONE_S = 3.0
"""A leg that should end within this time is let finish when its client leaves, so that its blocks can be freed."""

RELEASE_PATH = "/v1/completions"
"""Where a KV cache that nobody waits for is fetched, whatever the request was."""

_LEAST_QUEUED_BYTES = 16 * 1024
"""What a request takes beside its body."""

log = logging.getLogger(__name__)


class _Request:
    """A request in the middle of its way; `changed` says that the body is not any more what the client sent."""

    __slots__ = ("arrival", "body", "changed", "entry", "incoming", "shape", "ticket")

    def __init__(
        self,
        incoming: Incoming,
        body: dict[str, Any],
        shape: openai.RequestShape,
        *,
        arrival: Arrival,
        ticket: Ticket,
        entry: Entry,
        changed: bool,
    ) -> None:
        self.incoming = incoming
        self.body = body
        self.shape = shape
        self.arrival = arrival
        self.ticket = ticket
        self.entry = entry
        self.changed = changed


class Flow:
    """Carries requests from arrival to the hand-over to Envoy."""

    def __init__(
        self,
        fleet: Fleet,
        legs: PrefillClient,
        generations: Generations,
        traffic: Traffic,
        journal: Journal,
        *,
        queue_timeout_s: float,
        request_log: RequestLog | None = None,
        tracer: Tracer | None = None,
        tokens: Tokens | None = None,
    ) -> None:
        self._fleet = fleet
        self._request_log = request_log
        self._tracer = tracer
        self._tokens = tokens
        self._journal = journal
        self._legs = legs
        self._generations = generations
        self._traffic = traffic
        self._queue_timeout_s = queue_timeout_s
        self._desk = Desk(fleet, queue_timeout_s=queue_timeout_s)
        self._numbers = itertools.count()
        self._queued_bytes = 0
        self._releases: set[asyncio.Task[LegResult]] = set()

    async def passed(self, *, body: bytes | None = None, size: int = 0, generates: bool = False) -> Route | Reply:
        """Choose a worker for a request that is neither split nor counted.

        Args:
            body: the new body; None leaves the client's, if there is one.
            size: the body's bytes, as far as they are held here.
            generates: whether it is a generation, which a decode worker serves rather than another.
        """
        there_is = self._take_room(size)
        try:
            ends_s = time.monotonic() + self._queue_timeout_s
            while not (fewest := self._fleet.dispatcher.roster.fewest()):
                left_s = ends_s - time.monotonic()
                if not there_is or left_s <= 0 or not await self._changed(left_s):
                    return self._no_worker()
        finally:
            self._free_room(size)
        roster = self._fleet.dispatcher.roster
        if generates and (decoder := roster.decoders.top()) is not None:
            return Route(hosts=roster.hosts(decoder, most=MOST_HOSTS), body=body)
        return Route(hosts=tuple(account.worker for account in fewest[:MOST_HOSTS]), body=body)

    async def carried(self, raw: bytes, *, is_json: bool) -> Route | Reply:
        """Choose a worker for a request of another kind, without what clients may not set."""
        body = bodies.read(raw) if is_json and raw else None
        if isinstance(body, Reply):
            return body
        if isinstance(body, dict) and (clean := openai.without_transfer(body)) is not body:
            return await self.passed(body=orjson.dumps(clean), size=len(raw))
        return await self.passed(size=len(raw))

    async def decided(self, incoming: Incoming, *, chat: bool) -> Route | Reply:
        """Choose workers for a completion, and run its prefill leg."""
        said = bodies.read_object(incoming.body)
        if isinstance(said, Reply):
            return said
        body = openai.without_transfer(said)
        shape = openai.shape_of(body, chat=chat)
        tokens = shape.prompt_tokens + (self._traffic.token_rate.tokens(shape.text_bytes) if shape.text_bytes else 0)
        path = incoming.path.partition("?")[0]
        arrival = self._traffic.arrived(path, tokens)
        entry = Entry(
            incoming.request_id,
            path,
            kind=incoming.kind,
            tenant=incoming.tenant,
            stream=shape.stream,
            arrived_unix_s=arrival.unix_s,
        )
        self._journal.add(entry)
        if self._tracer is not None:
            entry.trace = self._tracer.begin(incoming.headers.get(names.HEADER_TRACE, ""), entry)
        ticket = Ticket(
            next(self._numbers),
            arrival.prompt_tokens,
            arrived_s=arrival.at_s,
            kind=incoming.kind,
            tenant=incoming.tenant,
            hashes=chain_of(body, chat=chat),
            block_tokens=self._traffic.token_rate.tokens(CHUNK_BYTES),
            whole_because=shape.whole_because,
        )
        refused = refusal(self._fleet.dispatcher, ticket, time.monotonic())
        if refused is not None:
            self._traffic.metrics.decisions.labels("refused").inc()
            self._traffic.metrics.errors.labels("overload").inc()
            entry.step(f"refused: {refused.why}")
            entry.ended(429, "overload")
            reply = overloaded(refused.why, retry_after_s=refused.retry_after_s)
            self._log_refused(self._note(ticket, body, arrival, shape), reply, arrival)
            return reply
        request = _Request(incoming, body, shape, arrival=arrival, ticket=ticket, entry=entry, changed=body is not said)
        there_is = self._take_room(len(incoming.body))
        try:
            if self._tokens is not None and there_is:
                await self._tokens.trace(ticket, body, chat=chat)
            outcome = await self._serve(request) if there_is else self._no_worker()
        except asyncio.CancelledError:
            entry.ended(0, "client_disconnect")
            raise
        finally:
            self._free_room(len(incoming.body))
        self._traffic.metrics.prompt_tokens.observe(arrival.prompt_tokens)
        entry.prompt_tokens = arrival.prompt_tokens
        if isinstance(outcome, Reply):
            entry.step("refused: no worker could take it")
            entry.ended(outcome.status, "no_worker")
            self._log_refused(self._note_of(request), outcome, arrival)
        return outcome

    def _note_of(self, request: _Request) -> Note | None:
        """Return what the request log needs to know at the request's end; None without such a log."""
        return self._note(request.ticket, request.body, request.arrival, request.shape)

    def _note(
        self, ticket: Ticket, body: Mapping[str, Any], arrival: Arrival, shape: openai.RequestShape
    ) -> Note | None:
        if self._request_log is None:
            return None
        return self._request_log.note(ticket, body, arrived_unix_s=arrival.unix_s, stream=shape.stream)

    def _log_refused(self, note: Note | None, reply: Reply, arrival: Arrival) -> None:
        if self._request_log is not None and note is not None:
            took_s, rate = time.monotonic() - arrival.at_s, self._traffic.token_rate
            self._request_log.ended(note, status=reply.status, body_bytes=0, rate=rate, duration_s=took_s)

    async def _serve(self, request: _Request) -> Route | Reply:
        while True:
            started_s = time.monotonic()
            assignment = await self._desk.place(request.ticket)
            self._traffic.metrics.queue.observe(time.monotonic() - started_s)
            if assignment is None:
                return self._no_worker()
            if request.entry.trace is not None:
                request.entry.trace.placed(why=assignment.why)
            if assignment.leg is None:
                log.debug("request %s is served whole: %s", request.incoming.request_id, assignment.why)
                self._traffic.metrics.decisions.labels("deflected" if assignment.deflected else "whole").inc()
                self._traffic.deflected_prompt_tokens += request.arrival.prompt_tokens if assignment.deflected else 0
                request.entry.step(f"placed whole: {assignment.why}")
                return self._hand_over(request, assignment.account, params=None)
            outcome = await self._prefilled(request, assignment.account, assignment.leg)
            if outcome is not None:
                return outcome

    async def _prefilled(self, request: _Request, account: Account, leg: Leg) -> Route | Reply | None:
        """Run a leg and hand over; return None if the request must be placed anew."""
        worker = self._fleet.of(account)
        if worker is None:
            self._fleet.dispatcher.prefill_ended(account, leg, now_s=time.monotonic(), served=False)
            return None
        request.entry.step(f"prompt to {worker.member.pod}{self._there(request.ticket, leg, account)}")
        trace, headers = request.entry.trace, request.incoming.headers
        if trace is not None:
            headers = trace.leg(worker.member.pod, headers)
        started_s = time.monotonic()
        result: LegResult | None = None
        try:
            result = await self._legs.run(
                worker,
                request.incoming.path,
                orjson.dumps(openai.prefill_leg(request.body, priority=self._priority(request))),
                headers=headers,
                late=partial(self._release, request.body.get("model"), request.incoming.headers),
                soon=lambda: leg.predicted_s - time.monotonic() < NEARLY_DONE_S,
            )
        finally:
            served = isinstance(result, Computed)
            self._fleet.prefill_ended(worker, leg, served=served, at_fault=isinstance(result, Failed))
            if trace is not None:
                trace.leg_ended(result)
        metrics = self._traffic.metrics
        metrics.legs.labels(type(result).__name__.lower()).observe(time.monotonic() - started_s)
        match result:
            case Refused(status=status):
                request.ticket.whole_because = f"its prefill leg was refused with status {status}"
                request.entry.step(f"prompt refused by {worker.member.pod} with status {status}")
                return None
            case Failed(why=why, unreachable=unreachable):
                metrics.prefill_retries.inc()
                log.warning("a prefill leg failed on %s: %s", worker.member.pod, why)
                request.entry.step(f"prompt failed on {worker.member.pod}: {why}")
                if unreachable:
                    self._fleet.probed(worker, fault=f"it cannot be connected to: {why}")
                request.ticket.failed |= {account.worker}
                if len(request.ticket.failed) >= MOST_LEGS:
                    request.ticket.failed |= {one.member.address for one in self._fleet.workers()}
                return None
            case Computed() as computed:
                self._learn(request, computed)
                request.entry.predicted_prompt_s = leg.predicted_s - request.arrival.at_s
                request.entry.step(f"prompt computed, {computed.prompt_tokens} tokens")
                return self._after_prefill(request, account, computed.kv_transfer_params)

    def _there(self, ticket: Ticket, leg: Leg, account: Account) -> str:
        """Say how much of a prompt lies at the worker that computes it, if workers tell that at all."""
        how = self._fleet.dispatcher.roster.present.how(ticket, account.worker)
        return f", where {ticket.tokens - leg.uncached} of its {ticket.tokens} tokens lie ({how})" if how else ""

    def _learn(self, request: _Request, computed: Computed) -> None:
        """Take over what a worker told of a prompt: its exact length, and whether others can fetch it."""
        ticket, tokens = request.ticket, computed.prompt_tokens
        self._traffic.counted(request.arrival, text_bytes=request.shape.text_bytes, prompt_tokens=tokens)
        if tokens > 0:
            ticket.tokens = tokens
        if computed.kv_transfer_params is None:
            self._traffic.metrics.no_transfer.inc()

    def _after_prefill(self, request: _Request, origin: Account, params: dict[str, Any] | None) -> Route | None:
        """Hand over to the decode worker that is best now, not when the prompt was still to be computed."""
        chosen = self._fleet.dispatcher.generate(request.ticket, origin, time.monotonic())
        if chosen is not None:
            self._traffic.metrics.decisions.labels("split").inc()
            return self._hand_over(request, chosen, params=params, origin=origin.worker)
        # Nobody is left to generate but, perhaps, the worker that holds the prompt's cache: let one do all of it.
        request.ticket.whole_because = "no decode worker was left after its prefill"
        return None

    def _hand_over(
        self, request: _Request, account: Account, *, params: dict[str, Any] | None, origin: str = ""
    ) -> Route:
        worker = self._fleet.of(account)
        if worker is not None:
            request.entry.step(f"handed to {worker.member.pod}")
            if request.entry.trace is not None:
                request.entry.trace.handed(worker.member.pod, whole=params is None)
            model, passed_on = request.body.get("model"), request.incoming.headers
            release = None if params is None else partial(self._release, model, passed_on, params)
            self._generations.sent(
                request.incoming.request_id,
                worker,
                context_tokens=request.ticket.tokens,
                stream=request.shape.stream,
                entry=request.entry,
                moved_s=request.ticket.moved_s,
                release=release,
                note=self._note_of(request),
            )
        priority = self._priority(request)
        unchanged = params is None and priority is None and not request.changed
        body = None if unchanged else orjson.dumps(openai.decode_leg(request.body, params, priority=priority))
        hosts = self._fleet.dispatcher.roster.hosts(account, most=MOST_HOSTS, origin=origin)
        if worker is None:
            return Route(hosts=hosts, body=body)
        usage, waiting, whole = worker.figures.kv_usage, worker.figures.waiting, params is None
        tokens = 0 if request.shape.stream else request.shape.most_output_tokens
        after_s = second_try_after_s(
            request.ticket, account, whole=whole, at_once_tokens=tokens, kv_usage=usage, waiting=waiting
        )
        return Route(hosts=hosts, body=body, second_try_after_s=after_s)

    def _release(self, model: object, headers: Mapping[str, str], params: dict[str, Any]) -> None:
        """Free the KV cache of a prompt whose client left between the two legs: let a decode worker fetch it."""
        account = self._fleet.dispatcher.roster.decoders.top()
        worker = None if account is None else self._fleet.of(account)
        if worker is None:
            return  # its worker frees it when the lease ends
        self._traffic.metrics.released.inc()
        body = orjson.dumps(openai.release_leg(model, params))
        work = self._legs.run(worker, RELEASE_PATH, body, headers=headers)
        task = asyncio.get_running_loop().create_task(work)
        self._releases.add(task)
        task.add_done_callback(self._releases.discard)

    def _priority(self, request: _Request) -> int | None:
        """Return what a worker that orders by priority is told: the smallest goes first there."""
        dispatcher = self._fleet.dispatcher
        return -dispatcher.class_of(request.ticket).priority if dispatcher.settings.pass_priority else None

    def _take_room(self, size: int) -> bool:
        """Take room for a request that may wait; whether there is any, which there always is while somebody serves."""
        self._queued_bytes += size + _LEAST_QUEUED_BYTES
        return self._fleet.dispatcher.serving or self._queued_bytes <= MOST_QUEUED_BYTES

    def _free_room(self, size: int) -> None:
        self._queued_bytes -= size + _LEAST_QUEUED_BYTES

    async def _changed(self, timeout_s: float) -> bool:
        """Wait until a worker changes; return False if none did in time."""
        self._traffic.queued += 1
        try:
            return await self._fleet.changed(timeout_s=timeout_s)
        finally:
            self._traffic.queued -= 1

    def _no_worker(self) -> Reply:
        self._traffic.metrics.decisions.labels("refused").inc()
        self._traffic.metrics.errors.labels("no_worker").inc()
        return unavailable(
            f"no worker could take the request: none came into rotation within {self._queue_timeout_s:g} s, "
            "or too many requests wait already; try again later"
        )
