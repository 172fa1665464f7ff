"""What the simulated router tells the manager: the counterpart of the live picker's windows, with their delays."""

from collections import deque
from collections.abc import Iterable
from typing import Final

from swingpool_control import names
from swingpool_control.figures import Figure, Unknown
from swingpool_control.observation import RouterObservation
from swingpool_control.simulation.histogram import Histogram
from swingpool_control.simulation.member import Member
from swingpool_control.simulation.placer import Placer
from swingpool_control.simulation.settings import START_UNIX_S, Settings
from swingpool_control.simulation.windows import Latencies, Sums, mean_of
from swingpool_control.sizing.recent import Recent

LEAST_COVERED_S: Final = 1.0
"""A rate over less than this says nothing."""


class Told:
    """What is known of the last seconds.

    Args:
        settings: how long the window is, and how late what is known.
        picker: whose knowledge it is.
    """

    def __init__(self, settings: Settings, *, picker: str) -> None:
        self._picker = picker
        self._window_s = settings.window_s
        self._log_late_s = settings.latencies.access_log_s
        self._arrivals = Sums(window_s=settings.window_s)
        self._recent = Recent()
        self._arrived, self._arrived_tokens = 0, 0
        self._deflected_tokens = 0
        self._ttft = Latencies(window_s=settings.window_s)
        self._outputs = Sums(window_s=settings.window_s)
        self._firsts: deque[tuple[float, Member, int, float]] = deque()
        """First tokens that the access log has not told yet."""
        self._itl = Latencies(window_s=settings.window_s)
        self._lengths: list[int] = []
        """Of answers that no scrape has told yet."""

    def deflected(self, prompt_tokens: int) -> None:
        """Count a prompt that a decode worker is given to compute."""
        self._deflected_tokens += prompt_tokens

    def arrived(self, prompt_tokens: int, *, now_s: float) -> None:
        """Count a request that arrives."""
        self._arrivals.add(prompt_tokens, now_s=now_s)
        self._recent.arrived(prompt_tokens, now_s=now_s)
        self._arrived += 1
        self._arrived_tokens += prompt_tokens

    def first(self, member: Member, epoch: int, at_s: float, ttft_s: float) -> None:
        """Count a first token; they are told of in the order in which they come."""
        self._firsts.append((at_s, member, epoch, ttft_s))

    def answered(self, output_tokens: int) -> None:
        """Count an answer that is whole."""
        if output_tokens > 1:
            self._lengths.append(output_tokens)

    def scraped(self, gaps: Histogram, *, now_s: float) -> None:
        """Take in what workers tell of themselves."""
        self._itl.include(gaps, now_s=now_s)
        self._recent.generated(gaps.count, now_s=now_s)
        for length in self._lengths:
            self._outputs.add(length, now_s=now_s)
            self._recent.answered(length, 1, now_s=now_s)
        self._lengths.clear()

    def observation(self, members: Iterable[Member], placer: Placer, *, now_s: float) -> RouterObservation:
        """Return what the manager gets when it asks now."""
        self._read_access_log(now_s)
        covered_s = min(self._window_s, now_s)
        arrivals, prompt_tokens = self._arrivals.recent(now_s=now_s)
        outputs, output_tokens = self._outputs.recent(now_s=now_s)
        return RouterObservation(
            picker=self._picker,
            at_unix_s=START_UNIX_S + now_s,
            window_s=self._window_s,
            requests_per_s=_rate(arrivals, covered_s),
            prompt_tokens_per_s=_rate(prompt_tokens, covered_s),
            mean_isl_tokens=mean_of(prompt_tokens, arrivals, name="arrival"),
            mean_osl_tokens=mean_of(output_tokens, outputs, name="answer of several tokens"),
            ttft_s=self._ttft.recent(now_s=now_s, name="first token"),
            itl_s=self._itl.recent(now_s=now_s, name="inter-token latency"),
            queued_requests=placer.queued,
            workers=tuple(member.observation() for member in members),
            queued_prompt_tokens=placer.queued_tokens,
            oldest_wait_s=placer.oldest_wait_s(now_s),
            arrival_scv=self._recent.arrival_scv(now_s=now_s),
            lengths=self._recent.lengths(now_s=now_s),
            arrived_requests=float(self._arrived),
            arrived_prompt_tokens=float(self._arrived_tokens),
            deflected_prompt_tokens=float(self._deflected_tokens),
        )

    def _read_access_log(self, now_s: float) -> None:
        told_until_s = now_s - self._log_late_s
        while self._firsts and self._firsts[0][0] <= told_until_s:
            at_s, member, epoch, ttft_s = self._firsts.popleft()
            member.served(names.ROLE_DECODE, epoch=epoch, at_s=at_s)
            self._ttft.add(ttft_s, 1, now_s=now_s)


def _rate(total: int, covered_s: float) -> Figure:
    if covered_s < LEAST_COVERED_S:
        return Unknown(f"the picker has run for less than {LEAST_COVERED_S:g} s")
    return total / covered_s
