"""The simulated router: places each request by the live placement's own functions, and tells what the live one would.

It differs from the live one in what costs it no decision: prompts' lengths are known exactly, and a request that has
not got a token when its worker fails is placed anew where Envoy would try the next worker.
"""

import math
from collections.abc import Callable, Mapping
from typing import Final

from swingpool_control.engine.work import Request
from swingpool_control.observation import RouterObservation
from swingpool_control.placement.account import Account, Leg
from swingpool_control.placement.dispatcher import Dispatcher
from swingpool_control.placement.limits import DeflectionLimits
from swingpool_control.placement.overload import refusal
from swingpool_control.placement.settings import STANDARD
from swingpool_control.placement.ticket import Ticket
from swingpool_control.simulation.events import Event, Later, Timeline, Waiting
from swingpool_control.simulation.histogram import Histogram
from swingpool_control.simulation.member import Member, fault_of
from swingpool_control.simulation.outcome import Outcome
from swingpool_control.simulation.placer import Placer
from swingpool_control.simulation.pods import Pod
from swingpool_control.simulation.runner import Job, Source
from swingpool_control.simulation.settings import Settings
from swingpool_control.simulation.told import Told
from swingpool_control.simulation.traffic import Arrival, block_hashes

MOST_LEGS: Final = 3
"""Prefill workers that a request is tried on before it is served whole."""


class _Flight(Ticket):
    """One request on its way."""

    __slots__ = ("arrival", "block_hashes", "first_s", "priority", "tries", "wait")

    def __init__(
        self,
        number: int,
        arrival: Arrival,
        *,
        hashes: tuple[int, ...],
        block_tokens: int,
        block_hashes: tuple[int, ...],
        priority: int,
        now_s: float,
    ) -> None:
        super().__init__(
            number,
            arrival.prompt_tokens,
            arrived_s=now_s,
            kind=arrival.kind or STANDARD,
            tenant=arrival.tenant,
            hashes=hashes,
            block_tokens=block_tokens,
        )
        self.arrival = arrival
        self.block_hashes = block_hashes
        self.priority = priority
        """What workers are told that go by it: the smallest goes first there."""
        self.tries = 0
        self.first_s: float | None = None
        self.wait: _Wait | None = None
        """Its present wait in the router, once that lasts."""

    def asked(self, leg: str, *, output_tokens: int, fetches: bool = False) -> Request:
        """Return what a worker is asked: `p` for the prompt alone, which another one fetches, or `d`."""
        self.tries += 1
        return Request(
            id=f"{self.number}.{self.tries}{leg}",
            prompt_tokens=self.tokens,
            output_tokens=output_tokens,
            block_hashes=self.block_hashes,
            remote_decode=leg == "p",
            remote_prefill=fetches,
            priority=self.priority,
        )


class _Wait(Waiting):
    """A request's patience."""

    __slots__ = ("flight", "router")

    def __init__(self, router: "Router", flight: _Flight) -> None:
        super().__init__()
        self.router = router
        self.flight = flight

    def due(self) -> None:
        """It has waited for long."""
        self.router.give_up(self)


class _Leg(Job):
    """A prompt that is computed for another worker."""

    __slots__ = ("flight", "member", "router", "sent")

    def __init__(self, request: Request, router: "Router", flight: _Flight, member: Member, sent: Leg) -> None:
        super().__init__(request, member.pod.runner)
        self.router = router
        self.flight = flight
        self.member = member
        self.sent = sent

    def reach(self) -> None:
        """It has arrived at the worker."""
        self.router.submit(self, self.flight, self.member)

    def ended(self, served: bool, at_s: float) -> None:
        """The prompt is computed, or not."""
        self.router.prefilled(self, served, at_s)


class _Answer(Job):
    """An answer that is generated."""

    __slots__ = ("epoch", "flight", "member", "router")

    def __init__(
        self, request: Request, router: "Router", flight: _Flight, member: Member, source: Source | None
    ) -> None:
        super().__init__(request, member.pod.runner, source=source)
        self.router = router
        self.flight = flight
        self.member = member
        self.epoch = member.account.epoch

    def reach(self) -> None:
        """It has arrived at the worker."""
        self.router.submit(self, self.flight, self.member)

    def first(self, at_s: float) -> None:
        """The first token is there."""
        self.flight.first_s = at_s
        self.flight.fetched(self.member.account)
        self.router.told.first(self.member, self.epoch, at_s, at_s - self.flight.arrived_s)

    def ended(self, served: bool, at_s: float) -> None:
        """All tokens are there, or will never be."""
        self.flight.fetched(self.member.account)
        self.router.generated(self, served)


class _Pump(Event):
    """Asks the placer again."""

    def __init__(self, router: "Router") -> None:
        self._router = router

    def happen(self, order: int) -> None:
        """It wants to be asked now."""
        self._router.pump_at(order)


class Router:
    """Places requests on the workers that it sees.

    Args:
        timeline: the clock.
        settings: how to simulate.
        placer: who places requests.
        block_size: tokens per KV block.
        priorities: what workers are told by the class of a request; the empty name stands for the others.
        ended: told of each request once, when it ends.
        picker: its name.
        alone: whether there is no other, of whose requests workers' figures alone tell.
    """

    def __init__(
        self,
        timeline: Timeline,
        settings: Settings,
        placer: Placer,
        *,
        block_size: int,
        priorities: Mapping[str, int],
        ended: Callable[[Outcome], None],
        picker: str = "simulated",
        alone: bool = True,
    ) -> None:
        self._priorities = priorities
        self._priority = priorities.get("", 0)
        """Of requests that name no class, or none that there is."""
        self._timeline = timeline
        self._settings = settings
        self._placer = placer
        self._block_size = block_size
        self._ended = ended
        self._members: dict[str, Member] = {}
        """By address, which is the pod's name here."""
        self.told = Told(settings, picker=picker)
        self._alone = alone
        self._refuses = placer if settings.overload and isinstance(placer, Dispatcher) else None
        """Who refuses requests under overload; None if nobody does."""
        self._flights: dict[int, _Flight] = {}
        self._hop_s = settings.latencies.hop_s
        self._on_the_way = timeline.line()
        self._patience = Later(timeline, settings.queue_timeout_s)
        self._pump_event = _Pump(self)
        self._pumps_s = math.inf
        """When the placer is asked next."""
        self._pump_order = 0

    # What it sees of workers

    def changed(self, pod: Pod, *, exists: Callable[[Pod], bool]) -> None:
        """See a pod's change, as late as a watch does; a worker that begins to answer, as late as a probe does."""
        delays = self._settings.latencies
        late_s = delays.watch_s
        member = self._members.get(pod.name)
        if pod.ready and (member is None or not member.pod.ready or member.fault):
            late_s += delays.probe_s
        at_start = self._timeline.now_s == 0.0
        self._timeline.after(0.0 if at_start else late_s, lambda: self._see(pod, exists(pod)))

    def scrape(self) -> None:
        """Read all workers' own figures."""
        now_s = self._timeline.now_s
        for member in self._members.values():
            member.scrape(now_s=now_s, shared=not self._alone)
            if not self._alone:
                self._placer.changed(member.account, role=member.role, in_rotation=member.in_rotation)

    def saw(self, gaps: Histogram) -> None:
        """Take in what those tell of the times between tokens."""
        self.told.scraped(gaps, now_s=self._timeline.now_s)

    def limit(self, limits: DeflectionLimits) -> None:
        """Take over how far placement may deflect."""
        self._placer.limits = limits

    def _see(self, pod: Pod, there: bool) -> None:
        member = self._members.get(pod.name)
        if not there:
            if member is not None:
                del self._members[pod.name]
                self._placer.removed(member.account)
                self._pump()
            return
        if member is None:
            account = Account(pod.name, pod.runner.engine.model)
            member = Member(pod=pod, account=account, role=pod.role, role_since_s=self._timeline.now_s)
            self._members[pod.name] = member
        member.became(role=pod.role, fault=fault_of(pod, self._timeline.now_s), now_s=self._timeline.now_s)
        self._placer.changed(member.account, role=member.role, in_rotation=member.in_rotation)
        self._pump()

    # Requests

    def arrive(self, number: int, arrival: Arrival) -> None:
        """Take a request."""
        now_s = self._timeline.now_s
        flight = _Flight(
            number,
            arrival,
            hashes=arrival.prefix if self._settings.prefix_caching else (),
            block_tokens=arrival.prefix_tokens,
            block_hashes=block_hashes(arrival, self._block_size) if arrival.prefix else (),
            priority=self._priorities.get(arrival.kind, self._priority) if arrival.kind else self._priority,
            now_s=now_s,
        )
        self._flights[number] = flight
        self.told.arrived(flight.tokens, now_s=now_s)
        if self._refuses is not None and refusal(self._refuses, flight, now_s) is not None:
            self._end(flight, "refused")
        else:
            self._serve(flight)

    def _serve(self, flight: _Flight) -> None:
        tries = flight.tries
        self._placer.offer(flight, self._timeline.now_s)
        self._pump()
        if flight.tries == tries:  # it was not sent at once
            flight.wait = _Wait(self, flight)
            self._patience.add(flight.wait)

    def _pump(self) -> None:
        """Carry out what the placer says, and ask it again when it wants to be asked."""
        placer = self._placer
        for assignment in placer.dispatch(self._timeline.now_s):
            flight = assignment.ticket
            if not isinstance(flight, _Flight):
                continue
            if flight.wait is not None:
                flight.wait.wanted, flight.wait = False, None
            member = self._members[assignment.account.worker]
            if assignment.leg is None:
                if assignment.deflected:
                    self.told.deflected(flight.tokens)
                self._generate(flight, member, None)
            else:
                self._prefill(flight, member, assignment.leg)
        if placer.next_s < self._pumps_s:
            self._pumps_s = placer.next_s
            self._pump_order = self._timeline.put(placer.next_s, self._pump_event)

    def pump_at(self, order: int) -> None:
        """Ask the placer again, if that is what was asked for last."""
        if order == self._pump_order:
            self._pumps_s = math.inf
            self._pump()

    def give_up(self, wait: _Wait) -> None:
        """Refuse a request that has waited for long, unless it will be served."""
        if self._placer.serving:
            self._patience.add(wait)
        else:
            wait.flight.wait = None
            self._placer.withdraw(wait.flight)
            self._end(wait.flight, "refused")

    def _prefill(self, flight: _Flight, member: Member, sent: Leg) -> None:
        self._send(_Leg(flight.asked("p", output_tokens=1), self, flight, member, sent))

    def prefilled(self, leg: _Leg, served: bool, at_s: float) -> None:
        """Go on with a request whose prompt is computed, or not."""
        flight, member, sent = leg.flight, leg.member, leg.sent
        self._placer.prefill_ended(member.account, sent, now_s=self._timeline.now_s, served=served, at_fault=not served)
        if served:
            member.prefill_served(epoch=sent.epoch, now_s=at_s)
            self._after_prefill(flight, member, Source(leg.to, leg.request.id))
        else:
            flight.failed |= {member.address}
            if len(flight.failed) >= MOST_LEGS:
                flight.failed |= frozenset(self._members)
            self._serve(flight)
        self._pump()

    def _after_prefill(self, flight: _Flight, origin: Member, source: Source) -> None:
        account = self._placer.generate(flight, origin.account, self._timeline.now_s)
        if account is not None:
            self._generate(flight, self._members[account.worker], source)
            return
        flight.whole_because = "no decode worker was left after its prefill"
        self._serve(flight)

    def _generate(self, flight: _Flight, member: Member, source: Source | None) -> None:
        tokens = flight.arrival.output_tokens
        request = flight.asked("d", output_tokens=tokens, fetches=source is not None)
        self._send(_Answer(request, self, flight, member, source))

    def generated(self, answer: _Answer, served: bool) -> None:
        """End a request that has its tokens; try again, if it may, one that has none."""
        flight = answer.flight
        self._placer.decode_ended(answer.member.account, flight.tokens)
        answer.member.decodes_served += served
        if served:
            self._end(flight, "completed")
        elif flight.first_s is None and flight.tries <= 2 * MOST_LEGS:
            self._serve(flight)
        else:
            self._end(flight, "failed")

    def _send(self, job: Job) -> None:
        self._on_the_way.put(self._timeline.now_s + self._hop_s, job)

    def submit(self, job: Job, flight: _Flight, member: Member) -> None:
        """Hand a request to a worker that it has reached; one that has gone meanwhile refuses it."""
        if not member.pod.ready:
            job.ended(False, self._timeline.now_s)
            return
        try:
            job.to.submit(job)
        except ValueError:  # longer than the worker's KV cache: no other try would help
            flight.tries, flight.first_s = 2 * MOST_LEGS + 1, None
            self._end(flight, "refused")

    def abandon(self) -> None:
        """End all requests that are left, as failed."""
        for flight in tuple(self._flights.values()):
            self._end(flight, "failed")

    def _end(self, flight: _Flight, result: str) -> None:
        del self._flights[flight.number]
        arrival = flight.arrival
        if result == "completed":
            self.told.answered(arrival.output_tokens)
        self._ended(
            Outcome(
                number=flight.number,
                arrival=arrival,
                first_s=flight.first_s,
                end_s=self._timeline.now_s,
                result=result,
            )
        )

    # What it tells

    def observe(self) -> RouterObservation:
        """Return what the manager gets when it asks now."""
        now_s = self._timeline.now_s
        for member in self._members.values():
            member.pod.runner.look()
        return self.told.observation(self._members.values(), self._placer, now_s=now_s)
