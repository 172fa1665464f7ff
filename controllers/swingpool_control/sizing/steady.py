"""What came of late, over as long as it has been the same: a turn of the load counts at once, chance counts little.

Half a minute of requests differs from the next by chance, and what was chance goes as it came: whoever moves workers
for it moves them back. So means are taken over the longest past that shows no change: however it is cut in two, the
means of both parts differ by no more than chance explains (ADWIN: Bifet and Gavalda, Learning from time-changing data
with adaptive windowing, 2007). That is minutes under a load that stays, and half a minute after a turn.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from swingpool_control.sizing.history import Series

CHANCE = 2.5
"""Standard deviations by which two means may differ by chance; there are many ways to cut a past in two."""

MOST_STEPS = 20
"""Steps that means are taken over at most: ten minutes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Steady:
    """Means over a time in which nothing changed for certain."""

    requests_per_s: float
    prompt_tokens_per_s: float
    over_s: float
    """How long that is at the least."""


def steady(requests: Series, tokens: Series, *, arrival_scv: float, prompt_scv: float) -> Steady | None:
    """Return the means over the longest past that tells of the present; None if not even its last step is known.

    The last closed step and the open one are one part, which is taken as it is: half a minute or more.

    Args:
        requests: requests per second.
        tokens: prompt tokens per second, of the same ticks.
        arrival_scv: squared coefficient of variation of the times between arrivals.
        prompt_scv: of the lengths of prompts.
    """
    asked, computed = _parts(requests), _parts(tokens)
    steps = min(len(asked), len(computed))
    if not steps:
        return None
    held = 1
    while held < steps and all(
        _is_alike(rates[: held + 1], asked, requests.step_s, spread)
        for rates, spread in ((asked, arrival_scv), (computed, arrival_scv + prompt_scv))
    ):
        held += 1
    return Steady(
        requests_per_s=math.fsum(asked[:held]) / held,
        prompt_tokens_per_s=math.fsum(computed[:held]) / held,
        over_s=held * requests.step_s,
    )


def last(series: Series) -> float | None:
    """Return the mean of the last closed step and the open one; None if that is not known."""
    parts = _parts(series)
    return parts[0] if parts else None


def _parts(series: Series) -> list[float]:
    """Return the rates of the last steps up to a gap, newest first; the open one is one with the last closed one."""
    if not series.values or series.values[-1] is None or not series.open_count:
        return []
    found = [(series.values[-1] + series.open_sum / series.open_count) / 2]
    for value in reversed(series.values[-MOST_STEPS:-1]):
        if value is None:
            break
        found.append(value)
    return found


def _is_alike(rates: Sequence[float], requests_per_s: Sequence[float], step_s: float, spread: float) -> bool:
    """Whether no cut has means on its sides that differ by more than chance explains.

    Args:
        rates: of steps, newest first, two at the least.
        requests_per_s: of the same steps and perhaps older ones.
        step_s: their length.
        spread: variance over squared mean of what comes in a time, times the requests in it.
    """
    count, total = len(rates), math.fsum(rates)
    requests = max(1.0, math.fsum(requests_per_s[:count]) * step_s)
    limit = CHANCE * total / count * math.sqrt(spread / requests)  # of the mean of all
    newer = 0.0
    for cut in range(1, count):
        newer += rates[cut - 1]
        apart = abs(newer / cut - (total - newer) / (count - cut))
        if apart > limit * math.sqrt(count / cut + count / (count - cut)):
            return False
    return True
