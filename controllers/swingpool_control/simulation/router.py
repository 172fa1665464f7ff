"""The simulated router: places each request by the live placement's own functions, and tells what the live one would.

It differs from the live one in what costs it no decision: prompts' lengths are known exactly, there is one picker, and
a request that has not got a token when its worker fails is placed anew where Envoy would try the next worker.
"""

import heapq
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from swingpool_control import names
from swingpool_control.engine.work import Request
from swingpool_control.figures import Figure, Unknown
from swingpool_control.observation import RouterObservation
from swingpool_control.placement.account import Account, Leg
from swingpool_control.placement.limits import DeflectionLimits
from swingpool_control.placement.ticket import Ticket
from swingpool_control.simulation.events import Timeline
from swingpool_control.simulation.histogram import Histogram
from swingpool_control.simulation.member import Member
from swingpool_control.simulation.outcome import Outcome
from swingpool_control.simulation.placer import Placer
from swingpool_control.simulation.pods import Pod
from swingpool_control.simulation.runner import Job, Source
from swingpool_control.simulation.settings import START_UNIX_S, Settings
from swingpool_control.simulation.traffic import Arrival, block_hashes
from swingpool_control.simulation.windows import Latencies, Sums, mean_of

MOST_LEGS = 3
"""Prefill workers that a request is tried on before it is served whole."""

LEAST_COVERED_S = 1.0
"""A rate over less than this says nothing."""


@dataclass(slots=True, kw_only=True, eq=False)
class _Flight:
    """One request on its way."""

    number: int
    arrival: Arrival
    ticket: Ticket
    hashes: tuple[int, ...]
    tries: int = 0
    first_s: float | None = None


class Router:
    """Places requests on the workers that it sees.

    Args:
        timeline: the clock.
        settings: how to simulate.
        placer: who places requests.
        block_size: tokens per KV block.
        ended: told of each request once, when it ends.
    """

    def __init__(
        self,
        timeline: Timeline,
        settings: Settings,
        placer: Placer,
        *,
        block_size: int,
        ended: Callable[[Outcome], None],
    ) -> None:
        self._timeline = timeline
        self._settings = settings
        self._placer = placer
        self._block_size = block_size
        self._ended = ended
        self._members: dict[str, Member] = {}
        """By address, which is the pod's name here."""
        self._flights: dict[Ticket, _Flight] = {}
        """Requests that wait, or may have to again."""
        self._pumps_s = math.inf
        """When the placer is asked next."""
        self._arrivals = Sums(window_s=settings.window_s)
        self._arrived, self._arrived_tokens = 0, 0
        self._ttft = Latencies(window_s=settings.window_s)
        self._outputs = Sums(window_s=settings.window_s)
        self._firsts: list[tuple[float, int, Member, int, float]] = []
        """First tokens that the access log has not told yet."""
        self._itl = Latencies(window_s=settings.window_s)
        self._lengths: list[int] = []
        """Of answers that no scrape has told yet."""

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

    def scrape(self, gaps: Callable[[], Histogram]) -> None:
        """Read all workers' own figures; `gaps` returns the times between tokens that were not read yet."""
        now_s = self._timeline.now_s
        for member in self._members.values():
            member.scrape(now_s=now_s)
        self._itl.include(gaps(), now_s=now_s)
        for length in self._lengths:
            self._outputs.add(length, now_s=now_s)
        self._lengths.clear()

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
        fault = "its pod is being deleted" if pod.deleting else "" if pod.ready else "its pod is not ready"
        member.became(role=pod.role, fault=fault, now_s=self._timeline.now_s)
        self._placer.changed(member.account, role=member.role, in_rotation=member.in_rotation)
        self._pump()

    # Requests

    def arrive(self, number: int, arrival: Arrival) -> None:
        """Take a request."""
        now_s = self._timeline.now_s
        self._arrivals.add(arrival.prompt_tokens, now_s=now_s)
        self._arrived += 1
        self._arrived_tokens += arrival.prompt_tokens
        ticket = Ticket(
            number,
            arrival.prompt_tokens,
            arrived_s=now_s,
            hashes=arrival.prefix if self._settings.prefix_caching else (),
            block_tokens=arrival.prefix_tokens,
        )
        hashes = block_hashes(arrival, self._block_size) if arrival.prefix else ()
        self._serve(_Flight(number=number, arrival=arrival, ticket=ticket, hashes=hashes))

    def _serve(self, flight: _Flight) -> None:
        self._flights[flight.ticket] = flight
        self._placer.offer(flight.ticket, self._timeline.now_s)
        self._pump()
        if flight.ticket in self._flights:
            self._timeline.after(self._settings.queue_timeout_s, partial(self._give_up, flight, flight.tries))

    def _pump(self) -> None:
        """Carry out what the placer says, and ask it again when it wants to be asked."""
        now_s = self._timeline.now_s
        placer = self._placer
        for assignment in placer.dispatch(now_s):
            flight = self._flights.pop(assignment.ticket)
            member = self._members[assignment.account.worker]
            if assignment.leg is None:
                self._generate(flight, member, None)
            else:
                self._prefill(flight, member, assignment.leg)
        if placer.next_s < self._pumps_s:
            self._pumps_s = placer.next_s
            self._timeline.at(placer.next_s, partial(self._pump_at, placer.next_s))

    def _pump_at(self, asked_s: float) -> None:
        if asked_s == self._pumps_s:
            self._pumps_s = math.inf
            self._pump()

    def _give_up(self, flight: _Flight, tries: int) -> None:
        if flight.ticket not in self._flights or flight.tries != tries:
            return
        if self._placer.serving:
            self._timeline.after(self._settings.queue_timeout_s, partial(self._give_up, flight, tries))
        else:
            del self._flights[flight.ticket]
            self._placer.withdraw(flight.ticket)
            self._end(flight, "refused")

    def _prefill(self, flight: _Flight, member: Member, sent: Leg) -> None:
        flight.tries += 1
        leg = f"{flight.number}.{flight.tries}p"

        def over(served: bool, at_s: float) -> None:
            self._placer.prefill_ended(
                member.account, sent, now_s=self._timeline.now_s, served=served, at_fault=not served
            )
            if served:
                member.prefill_served(epoch=sent.epoch, now_s=at_s)
                self._after_prefill(flight, member, Source(member.pod.runner, leg))
            else:
                flight.ticket.failed |= {member.address}
                if len(flight.ticket.failed) >= MOST_LEGS:
                    flight.ticket.failed |= frozenset(self._members)
                self._serve(flight)
            self._pump()

        tokens = flight.arrival.prompt_tokens
        request = Request(id=leg, prompt_tokens=tokens, output_tokens=1, block_hashes=flight.hashes, remote_decode=True)
        self._send(flight, member, request, Job(leg, on_first=None, on_end=over))

    def _after_prefill(self, flight: _Flight, origin: Member, source: Source) -> None:
        account = self._placer.generate(flight.ticket, origin.account, self._timeline.now_s)
        if account is not None:
            self._generate(flight, self._members[account.worker], source)
            return
        flight.ticket.whole_because = "no decode worker was left after its prefill"
        self._serve(flight)

    def _generate(self, flight: _Flight, member: Member, source: Source | None) -> None:
        flight.tries += 1
        name = f"{flight.number}.{flight.tries}d"
        tokens, epoch = flight.arrival.prompt_tokens, member.account.epoch

        def first(at_s: float) -> None:
            flight.first_s = at_s
            heapq.heappush(self._firsts, (at_s, flight.number, member, epoch, at_s - flight.arrival.at_s))

        def over(served: bool, _: float) -> None:
            self._placer.decode_ended(member.account, tokens)
            member.decodes_served += served
            if served:
                self._end(flight, "completed")
            elif flight.first_s is None and flight.tries <= 2 * MOST_LEGS:
                self._serve(flight)
            else:
                self._end(flight, "failed")

        request = Request(
            id=name,
            prompt_tokens=tokens,
            output_tokens=flight.arrival.output_tokens,
            block_hashes=flight.hashes,
            remote_prefill=source is not None,
        )
        self._send(flight, member, request, Job(name, on_first=first, on_end=over, source=source))

    def _send(self, flight: _Flight, member: Member, request: Request, job: Job) -> None:
        """Hand a request to a worker; one that has gone meanwhile refuses it."""

        def submit() -> None:
            if not member.pod.ready:
                job.on_end(False, self._timeline.now_s)
                return
            try:
                member.pod.runner.submit(request, job)
            except ValueError:  # longer than the worker's KV cache: no other try would help
                flight.tries, flight.first_s = 2 * MOST_LEGS + 1, None
                self._end(flight, "refused")

        self._timeline.after(self._settings.latencies.hop_s, submit)

    def _end(self, flight: _Flight, result: str) -> None:
        now_s = self._timeline.now_s
        if result == "completed" and flight.arrival.output_tokens > 1:
            self._lengths.append(flight.arrival.output_tokens)
        self._ended(
            Outcome(number=flight.number, arrival=flight.arrival, first_s=flight.first_s, end_s=now_s, result=result)
        )

    # What it tells

    def observe(self) -> RouterObservation:
        """Return what the manager gets when it asks now."""
        now_s = self._timeline.now_s
        self._read_access_log(now_s)
        window_s = self._settings.window_s
        covered_s = min(window_s, now_s)
        arrivals, prompt_tokens = self._arrivals.recent(now_s=now_s)
        outputs, output_tokens = self._outputs.recent(now_s=now_s)
        return RouterObservation(
            picker="simulated",
            at_unix_s=START_UNIX_S + now_s,
            window_s=window_s,
            requests_per_s=_rate(arrivals, covered_s),
            prompt_tokens_per_s=_rate(prompt_tokens, covered_s),
            mean_isl_tokens=mean_of(prompt_tokens, arrivals, name="arrival"),
            mean_osl_tokens=mean_of(output_tokens, outputs, name="answer of several tokens"),
            ttft_s=self._ttft.recent(now_s=now_s, name="first token"),
            itl_s=self._itl.recent(now_s=now_s, name="inter-token latency"),
            queued_requests=self._placer.queued,
            workers=tuple(member.observation() for member in self._members.values()),
            queued_prompt_tokens=self._placer.queued_tokens,
            oldest_wait_s=self._placer.oldest_wait_s(now_s),
            arrived_requests=float(self._arrived),
            arrived_prompt_tokens=float(self._arrived_tokens),
        )

    def _read_access_log(self, now_s: float) -> None:
        for member in self._members.values():
            member.pod.runner.look()
        told_until_s = now_s - self._settings.latencies.access_log_s
        while self._firsts and self._firsts[0][0] <= told_until_s:
            at_s, _, member, epoch, ttft_s = heapq.heappop(self._firsts)
            member.served(names.ROLE_DECODE, epoch=epoch, at_s=at_s)
            self._ttft.add(ttft_s, 1, now_s=now_s)


def _rate(total: int, covered_s: float) -> Figure:
    if covered_s < LEAST_COVERED_S:
        return Unknown(f"the picker has run for less than {LEAST_COVERED_S:g} s")
    return total / covered_s
