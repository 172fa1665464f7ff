"""What goes through a router that tells nothing, as its workers' own metrics show it.

Every request is in a prefill worker's batch or queue, then in a decode worker's, then among the requests that ended
there: the sum of the three grows by one with each request, whatever the router does.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from swingpool.telemetry.vllm_page import NO_FIGURES, Histogram, WorkerFigures
from swingpool.telemetry.windows import Histograms, Values, mean_of, percentiles_in, typical
from swingpool_control import names
from swingpool_control.figures import Figure, Unknown
from swingpool_control.observation import Percentiles, RouterObservation, WorkerObservation
from swingpool_control.sizing.recent import Recent

WINDOW_S = 15.0
LEAST_COVERED_S = 2.0
"""A rate over less than this says nothing."""
SILENT_AFTER_S = 5.0
"""How long a worker's last answer is good for; one that hangs is not ready by then."""
ROLES = (names.ROLE_PREFILL, names.ROLE_DECODE)
PICKER = "external"
_NOT_SERVED = Unknown("it has served nothing in this role yet")


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A worker, and what it answered."""

    pod: str
    uid: str
    address: str
    role: str
    """The role label's value."""
    why_not: str
    """Why it gets no requests by its pod's state; empty if it does."""
    figures: WorkerFigures | None
    """None if it did not answer."""


@dataclass(slots=True, kw_only=True)
class _Known:
    """One worker so far."""

    asked: Asked
    role_since_unix_s: float
    phase: str
    """What it last was, of prefill and decode: a draining worker ends what it began as that."""
    figures: WorkerFigures = NO_FIGURES
    ended: dict[str, float] = field(default_factory=lambda: dict.fromkeys(ROLES, 0.0))
    """Requests that ended in it, by what it was then."""
    first_served_unix_s: Figure = _NOT_SERVED

    @property
    def in_flight(self) -> Figure:
        """What it runs or has waiting."""
        running, waiting = self.figures.running, self.figures.waiting
        if isinstance(running, Unknown):
            return running
        return waiting if isinstance(waiting, Unknown) else running + waiting


class ExternalTraffic:
    """The traffic of one cluster.

    Args:
        window_s: over which rates, means and percentiles are taken; several looks at each worker.
        silent_after_s: how long a worker's last answer is good for.
        picker: whose observations these are.
        silence: what is said of a worker that is silent.
    """

    def __init__(
        self,
        *,
        window_s: float = WINDOW_S,
        silent_after_s: float = SILENT_AFTER_S,
        picker: str = PICKER,
        silence: str = "it does not answer /metrics",
    ) -> None:
        self.window_s = window_s
        self._silent_after_s = silent_after_s
        self._picker = picker
        self._silence = silence
        self._known: dict[str, _Known] = {}
        self._silent: tuple[str, ...] = ()
        self._first = {phase: Histograms(window_s=window_s) for phase in ROLES}
        self._prompts = {phase: Histograms(window_s=window_s) for phase in ROLES}
        self._itl = Histograms(window_s=window_s)
        self._outputs = Histograms(window_s=window_s)
        self._cached = Values(window_s=window_s)
        self._tells_cached = False
        self._recent = Recent()
        self._ended_of_gone = 0.0
        self._arrived = 0.0
        self._arrived_tokens = 0.0
        self._counts: deque[tuple[float, float, float]] = deque()
        """Times, and the requests and prompt tokens that had arrived then."""

    def saw(self, workers: Sequence[Asked], *, now_unix_s: float) -> None:
        """Take over what all workers answered at one moment."""
        gone = self._known.keys() - {one.uid for one in workers}
        for uid in gone:
            self._ended_of_gone += self._known.pop(uid).ended[names.ROLE_DECODE]
        for asked in workers:
            self._saw(asked, now_unix_s)
        self.look(now_unix_s=now_unix_s)
        self._count(now_unix_s)

    def look(self, *, now_unix_s: float) -> None:
        """Judge anew who is silent, where nothing new was heard."""
        self._silent = tuple(
            one.asked.pod
            for one in self._known.values()
            if not one.asked.why_not and self._stale(one.figures, now_unix_s)
        )

    def observation(self, *, now_unix_s: float) -> RouterObservation:
        """Return what is known of the traffic and of each worker; one that is silent leaves the traffic unknown."""
        requests, tokens = self._rates()
        return RouterObservation(
            picker=self._picker,
            at_unix_s=now_unix_s,
            window_s=self.window_s,
            requests_per_s=requests,
            prompt_tokens_per_s=tokens,
            mean_isl_tokens=self._mean_prompt(now_unix_s),
            mean_osl_tokens=_mean_answer(self._outputs.recent(now_s=now_unix_s)),
            ttft_s=self._ttft(now_unix_s),
            itl_s=percentiles_in(self._itl.recent(now_s=now_unix_s), name="inter-token latency"),
            queued_requests=0,
            workers=tuple(self._worker(one, now_unix_s) for one in self._known.values()),
            lengths=self._recent.lengths(now_s=now_unix_s),
            cached_prompt_tokens_per_s=self._cached_per_s(now_unix_s),
            arrived_requests=self._whole(self._arrived),
            arrived_prompt_tokens=self._whole(self._arrived_tokens),
        )

    def _saw(self, asked: Asked, now_unix_s: float) -> None:
        known = self._known.get(asked.uid)
        if known is None:
            known = _Known(asked=asked, role_since_unix_s=now_unix_s, phase=asked.role)
            self._known[asked.uid] = known
        phase = known.phase
        if asked.role != known.asked.role:
            known.role_since_unix_s, known.first_served_unix_s = now_unix_s, _NOT_SERVED
        if asked.role in ROLES:
            known.phase = asked.role
        known.asked = asked
        before, now = known.figures, asked.figures
        if now is None:
            return
        known.figures = now
        if isinstance(before.scraped_unix_s, Unknown) or phase not in ROLES:
            return  # the first look sets where counting starts
        self._grew(known, before, now, phase, now_unix_s)

    def _grew(self, known: _Known, before: WorkerFigures, now: WorkerFigures, phase: str, at_s: float) -> None:
        prompts = _growth(now.prompt_tokens, before.prompt_tokens)
        first = _growth(now.ttft_s, before.ttft_s)
        known.ended[phase] += prompts.count
        if first.count > 0 and phase == known.asked.role and isinstance(known.first_served_unix_s, Unknown):
            known.first_served_unix_s = at_s
        self._prompts[phase].add(prompts, now_s=at_s)
        self._first[phase].add(first, now_s=at_s)
        if phase == names.ROLE_DECODE:
            outputs = _growth(now.output_tokens, before.output_tokens)
            gaps = _growth(now.itl_s, before.itl_s)
            self._itl.add(gaps, now_s=at_s)
            self._recent.generated(gaps.count, now_s=at_s)
            self._outputs.add(outputs, now_s=at_s)
            for tokens, count in typical(outputs) if outputs.count > 0 else ():
                self._recent.answered(tokens, count, now_s=at_s)
            for tokens, count in typical(prompts) if prompts.count > 0 else ():
                self._recent.asked(tokens, count, now_s=at_s)
        elif not isinstance(now.cached_tokens, Unknown):
            self._tells_cached = True
            cached = 0.0 if isinstance(before.cached_tokens, Unknown) else now.cached_tokens - before.cached_tokens
            self._cached.add(max(0.0, cached), now_s=at_s)

    def _count(self, now_unix_s: float) -> None:
        held = 0.0
        for known in self._known.values():
            in_flight = known.in_flight
            held += known.ended[names.ROLE_DECODE] + (0.0 if isinstance(in_flight, Unknown) else in_flight)
        if not self._silent:
            # Between its two legs a request is nowhere for a moment; none ever comes back.
            arrived = max(self._arrived, self._ended_of_gone + held)
            mean = self._mean_prompt(now_unix_s)
            self._arrived_tokens += 0.0 if isinstance(mean, Unknown) else (arrived - self._arrived) * mean
            self._arrived = arrived
        self._counts.append((now_unix_s, self._arrived, self._arrived_tokens))
        while len(self._counts) > 2 and self._counts[1][0] <= now_unix_s - self.window_s:
            self._counts.popleft()

    def _whole(self, total: float) -> Figure:
        """Return a total of all workers, unknown if one of them is silent: a part of the traffic is not the traffic."""
        return Unknown(f"{', '.join(self._silent)}: {self._silence}") if self._silent else total

    def _rates(self) -> tuple[Figure, Figure]:
        if not self._counts:
            nothing = Unknown("no worker has been looked at yet")
            return nothing, nothing
        (began_s, requests, tokens), (now_s, all_requests, all_tokens) = self._counts[0], self._counts[-1]
        if now_s - began_s < LEAST_COVERED_S and not self._silent:
            early = Unknown(f"the workers have been watched for less than {LEAST_COVERED_S:g} s")
            return early, early
        lasted_s = max(LEAST_COVERED_S, now_s - began_s)
        return self._whole((all_requests - requests) / lasted_s), self._whole((all_tokens - tokens) / lasted_s)

    def _mean_prompt(self, now_s: float) -> Figure:
        """Return the mean prompt: of prefill workers where there are some, who tell it sooner."""
        found = [self._prompts[phase].recent(now_s=now_s) for phase in ROLES]
        whole = next((one for one in found if one.count > 0), Histogram())
        return mean_of(whole.sum, whole.count, name="prompt")

    def _ttft(self, now_s: float) -> Percentiles:
        """Return the time to first token: of the prompt's leg, and then of the transfer and the first step.

        Percentiles of a sum are no sums of percentiles: this is never too low where the two go together.
        """
        prompt, token = (percentiles_in(self._first[phase].recent(now_s=now_s), name="first token") for phase in ROLES)
        if prompt.count == 0:
            return token
        levels = ("p50", "p90", "p95", "p99")
        sums = {level: _sum(getattr(prompt, level), getattr(token, level)) for level in levels}
        return Percentiles(count=min(prompt.count, token.count), **sums)

    def _cached_per_s(self, now_s: float) -> Figure:
        if not self._tells_cached:
            return Unknown("no prefill worker tells what its prefix cache had")
        covered_s = min(self.window_s, max(1.0, now_s - self._counts[0][0]))
        return sum(self._cached.recent(now_s=now_s)) / covered_s

    def _stale(self, figures: WorkerFigures, now_unix_s: float) -> bool:
        scraped = figures.scraped_unix_s
        return isinstance(scraped, Unknown) or now_unix_s - scraped >= self._silent_after_s

    def _worker(self, known: _Known, now_s: float) -> WorkerObservation:
        asked, in_flight, mean = known.asked, known.in_flight, self._mean_prompt(now_s)
        stale = self._stale(known.figures, now_s)
        held = 0 if isinstance(in_flight, Unknown) else round(in_flight)
        prefills, decodes = (held if known.phase == phase else 0 for phase in ROLES)
        why_not = asked.why_not or (self._silence if stale else "")
        if not why_not and asked.role not in ROLES:
            why_not = f"its role is {asked.role!r}" if asked.role else "it has no role"
        return WorkerObservation(
            pod=asked.pod,
            address=asked.address,
            role=asked.role,
            role_since_unix_s=known.role_since_unix_s,
            in_rotation=not why_not,
            why_not=why_not,
            pending_prefill_tokens=0 if isinstance(mean, Unknown) else round(prefills * mean),
            prefills_in_flight=prefills,
            decodes_in_flight=decodes,
            prefills_served=round(known.ended[names.ROLE_PREFILL]),
            decodes_served=round(known.ended[names.ROLE_DECODE]),
            first_served_in_role_unix_s=known.first_served_unix_s,
            running=Unknown(self._silence) if stale else known.figures.running,
            waiting=Unknown(self._silence) if stale else known.figures.waiting,
            kv_usage=Unknown(self._silence) if stale else known.figures.kv_usage,
            scraped_unix_s=known.figures.scraped_unix_s,
        )


def _growth(now: Histogram | None, before: Histogram | None) -> Histogram:
    return Histogram() if now is None else now.since(before or Histogram())


def _mean_answer(outputs: Histogram) -> Figure:
    return mean_of(outputs.sum, outputs.count, name="answer")


def _sum(one: Figure, other: Figure) -> Figure:
    if isinstance(one, Unknown):
        return one
    return other if isinstance(other, Unknown) else one + other
