"""Traffic cut into stretches of time, each as sizing reasons about it; memory does not grow with the traffic."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from swingpool_control.simulation.traffic import Arrival
from swingpool_control.sizing.traffic import Lengths, Traffic, lengths_of, merged

FIRST_S = 15.0
MOST = 192
"""Stretches; when there are more, every two become one."""
LEAST_REQUESTS = 100
"""Mean of a stretch: with fewer, chance alone would look like a peak."""
BATCH = 2_000
"""Pairs of lengths that are kept before they are put into the sketch."""
LEAST_GAPS = 30
"""Gaps from which on a stretch's own burstiness is known; with fewer, arrivals are taken as Poisson's."""
MOST_SCV = 16.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """A stretch of time and what came in it."""

    from_s: float
    until_s: float
    traffic: Traffic


@dataclass(slots=True)
class _Filling:
    pairs: list[tuple[float, float]] = field(default_factory=list)
    lengths: Lengths | None = None
    count: int = 0
    gaps: int = 0
    gaps_s: float = 0.0
    squares_s2: float = 0.0

    def sketch(self) -> Lengths | None:
        """Return all lengths up to now."""
        parts = [] if self.lengths is None else [self.lengths]
        if self.pairs:
            parts.append(lengths_of(self.pairs))
            self.pairs = []
        self.lengths = merged(parts) if parts else None
        return self.lengths

    def include(self, other: "_Filling") -> None:
        parts = [one for one in (self.sketch(), other.sketch()) if one is not None]
        self.lengths = merged(parts) if parts else None
        self.count += other.count
        self.gaps += other.gaps
        self.gaps_s += other.gaps_s
        self.squares_s2 += other.squares_s2

    def scv(self) -> float:
        if self.gaps < LEAST_GAPS or self.gaps_s <= 0:
            return 1.0
        mean = self.gaps_s / self.gaps
        return min(MOST_SCV, max(0.0, self.squares_s2 / self.gaps / mean**2 - 1.0))


def stretches(arrivals: Iterable[Arrival]) -> tuple[Stretch, ...]:
    """Return the stretches in which anything arrived, in their order.

    The last one, which the traffic's end cuts, keeps its full length unless it is the only one.
    """
    width_s, filling, last_s = FIRST_S, [_Filling()], 0.0
    for arrival in arrivals:
        while int(arrival.at_s // width_s) >= MOST:
            filling, width_s = _halved(filling), width_s * 2
        index = int(arrival.at_s // width_s)
        filling.extend(_Filling() for _ in range(index + 1 - len(filling)))
        one = filling[index]
        if one.count:
            gap_s = arrival.at_s - last_s
            one.gaps += 1
            one.gaps_s += gap_s
            one.squares_s2 += gap_s * gap_s
        one.count += 1
        one.pairs.append((arrival.prompt_tokens, arrival.output_tokens))
        if len(one.pairs) >= BATCH:
            one.sketch()
        last_s = arrival.at_s
    while len(filling) > 1 and sum(one.count for one in filling) < LEAST_REQUESTS * len(filling):
        filling, width_s = _halved(filling), width_s * 2
    only_s = max(1.0, math.ceil(last_s)) if len(filling) == 1 else width_s
    return tuple(
        Stretch(
            from_s=number * width_s,
            until_s=number * width_s + only_s,
            traffic=Traffic(requests_per_s=one.count / only_s, lengths=lengths, arrival_scv=one.scv()),
        )
        for number, one in enumerate(filling)
        if (lengths := one.sketch()) is not None
    )


def _halved(filling: list[_Filling]) -> list[_Filling]:
    pairs = [filling[number : number + 2] for number in range(0, len(filling), 2)]
    for pair in pairs:
        if len(pair) == 2:
            pair[0].include(pair[1])
    return [pair[0] for pair in pairs]
