"""What will come over the next minutes, with an upper bound: as much as shall be there when it comes.

A forecast looks as far ahead as a worker takes to start. Its model is chosen by what would have foretold the past
best: the level, a damped trend, or what recurs each hour, each day, or in any other cycle that shows. Models are fitted
seldom, and carried forward from step to step in between. On top stands a burst detector: what lies above everything
that was foretold is followed at once.
"""

import math
from dataclasses import dataclass, field, replace
from itertools import pairwise

from swingpool_control.figures import Figure, Unknown
from swingpool_control.sizing.history import History, Series

BURST = "burst"
"""The model of a forecast that stands on a rate that rises beyond what was foretold."""
REFIT_S = 600.0
"""How often models are chosen and fitted anew."""
_FEWEST = 8
"""Closed steps that a fit stands on at least."""
_STALE_S = 600.0
"""After so long without a tick nothing is foretold."""
_SET_BACK_S = 3600.0
"""A rate that is older than the last by more than this comes from a clock that was set back."""
_EARLY_STEPS = 1
"""Steps by which what recurs may come earlier than before."""
_BURST = 1.2
"""A rate above the upper bound by this factor, in two ticks in a row, is a burst."""
_APART_S = 14.0
"""Between ticks that are compared: a rate is that of some seconds."""
_FALL = 1.2
"""A rate below the expected one by this factor is the end of a level."""
_MOST_GROWTH = 1.5
"""A burst is not taken to grow by more than this factor within the horizon."""
_GROWS_S = 60.0
"""A burst's growth is not taken to go on for longer."""
_DEVIATIONS, _MOST_UNFITTED = 1.3, 0.25
"""Standard deviations, of what a step differs from the one before, to the upper bound before there is any fit; and the
share of the rate that this is at most: a load that has just begun differs from nothing."""
_UNFITTED_BURST = 1.5
"""As `_BURST` before there is any fit: what is usual is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """A fitted model at one moment; steps are those of its series."""

    model: str
    """What it is called: level, trend or seasonal, and over what time."""
    step_s: float
    at_index: int
    """The last step that it has seen."""
    level: float
    trend: float = 0.0
    """Change per step."""
    damping: float = 0.0
    """What remains of the trend from step to step."""
    level_weight: float
    """Of the newest step."""
    trend_weight: float = 0.0
    season: tuple[float, ...] = ()
    """What recurs, by step number modulo the period; empty if nothing does."""
    spread: float = 0.0
    """From the forecast to its upper bound."""

    def seasonal(self, index: int) -> float:
        """Return what recurs at a step."""
        return self.season[index % len(self.season)] if self.season else 0.0

    def followed(self, values: tuple[float, ...]) -> "Fit":
        """Return the model after more steps: Holt's recursion with a damped trend."""
        level, trend, index = self.level, self.trend, self.at_index
        for value in values:
            index += 1
            foretold = level + self.damping * trend
            moved = foretold + self.level_weight * (value - self.seasonal(index) - foretold)
            trend = self.damping * trend + self.trend_weight * (moved - level - self.damping * trend)
            level = moved
        return replace(self, at_index=index, level=level, trend=trend)

    def at(self, index: int) -> float:
        """Return the forecast for a step after the last that it has seen; never below zero."""
        ahead = max(0, index - self.at_index)
        damped = self.damping * (1 - self.damping**ahead) / (1 - self.damping) if self.damping < 1 else float(ahead)
        return max(0.0, self.level + damped * self.trend + self.seasonal(index))


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecastMemory:
    """What the forecast remembers: plain numbers, so that it can be written down and read again."""

    history: History = field(default_factory=History)
    fits: tuple[Fit, ...] = ()
    """At most one for each series of the history."""
    fitted_unix_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """A rate over the time ahead."""

    expected: float
    """The highest that is foretold."""
    upper: float
    """What it should not exceed in nine of ten cases, and never less than what is there now."""
    model: str
    """What it stands on."""


def follow(memory: ForecastMemory, rate: Figure, *, now_unix_s: float) -> ForecastMemory:
    """Return the memory after one more look; an unknown rate, or one that comes late, changes nothing.

    Args:
        memory: as it was.
        rate: what came per second lately.
        now_unix_s: the time.
    """
    if isinstance(rate, Unknown) or not math.isfinite(rate) or rate < 0:
        return memory
    ticks = memory.history.ticks
    if ticks and now_unix_s < ticks[-1][0] - _SET_BACK_S:
        memory = ForecastMemory()  # the clock was set back: what was seen lies at no time that is known
    history = memory.history.with_tick(rate, at_unix_s=now_unix_s)
    if history is memory.history:
        return memory
    fits = tuple(_carried(fit, history) for fit in memory.fits)
    due = now_unix_s - memory.fitted_unix_s >= REFIT_S
    if not due or len(history.fine.values) < _FEWEST:
        return ForecastMemory(history=history, fits=fits, fitted_unix_s=memory.fitted_unix_s)
    # Its library takes a second to import, which nobody shall wait for who does not forecast.
    from swingpool_control.sizing.fitting import fit

    return ForecastMemory(history=history, fits=fit(history), fitted_unix_s=now_unix_s)


def ahead(memory: ForecastMemory, *, now_unix_s: float, horizon_s: float) -> Forecast | Unknown:
    """Return what will come from now until `horizon_s` from now, or why that cannot be said.

    Args:
        memory: what was seen.
        now_unix_s: the time.
        horizon_s: how far to look: at least what a worker takes to start.
    """
    ticks = memory.history.ticks
    if not ticks:
        return Unknown("no rate was seen yet")
    if now_unix_s - ticks[-1][0] > _STALE_S:
        return Unknown(f"no rate was seen for {now_unix_s - ticks[-1][0]:.0f} s")
    rate = ticks[-1][1]
    foretold = [
        _fallen(fit, ticks, now_unix_s=now_unix_s) or _over(fit, now_unix_s=now_unix_s, horizon_s=horizon_s)
        for fit in memory.fits
    ]
    foretold.append(_unfitted(memory.history.fine, rate) if not foretold else Forecast(expected=0, upper=0, model=""))
    best = max(foretold, key=lambda one: one.upper)
    if _is_burst(memory, now_unix_s=now_unix_s):
        grown = _grown(ticks, horizon_s)
        if grown > best.upper:
            return Forecast(expected=rate, upper=grown, model=BURST)
    return Forecast(expected=max(best.expected, 0.0), upper=max(best.upper, rate), model=best.model)


def recurring(memory: ForecastMemory, *, now_unix_s: float, horizon_s: float) -> dict[int, float]:
    """Return what is expected in each fine step from now until the horizon, where it recurs; empty if nothing does.

    Args:
        memory: what was seen.
        now_unix_s: the time.
        horizon_s: how far to look.
    """
    step_s = memory.history.fine.step_s
    fit = next((one for one in memory.fits if one.season and one.step_s == step_s), None)
    if fit is None:
        return {}
    first, last = (math.floor(at_s / step_s) for at_s in (now_unix_s, now_unix_s + horizon_s))
    return {index: fit.at(index) for index in range(first, last + _EARLY_STEPS + 1)}


def _carried(fit: Fit, history: History) -> Fit:
    """Carry a fit on over the steps that were closed since."""
    series = history.fine if fit.step_s == history.fine.step_s else history.coarse
    if series.open_index is None:
        return fit
    fresh = min(series.open_index - 1 - fit.at_index, len(series.values))
    values = series.filled()[-fresh:] if fresh > 0 else ()
    return fit.followed(values) if len(values) == fresh else fit


def _over(fit: Fit, *, now_unix_s: float, horizon_s: float) -> Forecast:
    """Return the highest forecast of the steps between now and the horizon."""
    first = math.floor(now_unix_s / fit.step_s)
    last = math.floor((now_unix_s + horizon_s) / fit.step_s) + (_EARLY_STEPS if fit.season else 0)
    last = min(last, first + 10 * max(1, len(fit.season)) + 1000)
    expected = max(fit.at(index) for index in range(first, last + 1))
    return Forecast(expected=expected, upper=expected + fit.spread, model=fit.model)


def _fallen(fit: Fit, ticks: tuple[tuple[float, float], ...], *, now_unix_s: float) -> Forecast | None:
    """Return the forecast where a rate has fallen away from a level to which nothing recurs; None where it has not.

    A smoothed level says for minutes what is over. How long workers are kept after that is not the forecast's to say.
    """
    rate = ticks[-1][1]
    if fit.season or _FALL * rate >= fit.at(math.floor(now_unix_s / fit.step_s)):
        return None
    return Forecast(expected=rate, upper=rate + min(fit.spread, rate), model=fit.model)


def _unfitted(series: Series, rate: float) -> Forecast:
    """Return a forecast from the last steps alone."""
    values = series.filled()[-20:]
    steps = [after - before for before, after in pairwise(values)]
    spread = math.sqrt(sum(step * step for step in steps) / len(steps)) if steps else 0.0
    return Forecast(expected=rate, upper=rate + min(_MOST_UNFITTED * rate, _DEVIATIONS * spread), model="last rate")


def _is_burst(memory: ForecastMemory, *, now_unix_s: float) -> bool:
    """Tell whether the last two ticks lie above everything that was foretold for now."""
    last = _apart(memory.history.ticks, 2)
    if not memory.fits or len(last) < 2:
        return len(last) == 2 and last[1][1] > _UNFITTED_BURST * last[0][1]
    upper = max(_over(fit, now_unix_s=now_unix_s, horizon_s=0.0).upper for fit in memory.fits)
    return last[1][1] > _BURST * upper and (last[0][1] > upper or last[1][1] > _BURST * last[0][1])


def _grown(ticks: tuple[tuple[float, float], ...], horizon_s: float) -> float:
    """Return where a rate that rises goes on to, as far as it may be trusted; the rate itself if it does not rise.

    A single rise is a step, or the beginning of one in a window of some seconds; only two in a row are growth.
    """
    rate = ticks[-1][1]
    slopes = [(later[1] - one[1]) / max(1.0, later[0] - one[0]) for one, later in pairwise(_apart(ticks, 3))]
    slope = min(slopes) if len(slopes) == 2 else 0.0
    return min(rate + max(0.0, slope) * min(horizon_s, _GROWS_S), _MOST_GROWTH * rate)


def _apart(ticks: tuple[tuple[float, float], ...], count: int) -> list[tuple[float, float]]:
    """Return the last ticks that lie so far apart that each tells of other requests, oldest first."""
    found = [ticks[-1]]
    for tick in reversed(ticks):
        if len(found) < count and found[-1][0] - tick[0] >= _APART_S:
            found.append(tick)
    return found[::-1]
