"""Choosing and fitting the forecast's models, by statsmodels: what would have foretold the recent past best.

Every candidate is fitted to all but the last part of the past and then carried through that part, foretelling each step
ahead of it. What was foretold too low costs nine times what was foretold too high, since the upper bound shall hold in
nine of ten cases. What recurs is found by STL (seasonal-trend decomposition by loess), level and trend by exponential
smoothing whose weights are estimated.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray
from statsmodels.tsa.holtwinters import ExponentialSmoothing
from statsmodels.tsa.seasonal import STL

from swingpool_control.sizing.forecast import Fit
from swingpool_control.sizing.history import History, Series

Floats = NDArray[np.float64]

_CYCLES_S = {30.0: (3600.0,), 600.0: (86_400.0, 604_800.0)}
"""Cycles that are tried, by the series' step; others that show are tried beside them."""
_SHORTEST, _FEWEST_CYCLES = 10, 2
"""Steps of a cycle, and cycles that must have been seen before what recurs is trusted at all."""
_TRIED = 0.75
"""Of a cycle, what those must have foretold beside: with what comes each hour, the fourth one is ready for."""
_SHOWS = 0.3
"""Autocorrelation from which on a cycle shows."""
_AHEAD = 4
"""Steps ahead of which a candidate is judged: two minutes, or forty."""
_FEWEST = 8
"""Steps that a model is fitted to at least."""
_TESTED, _LATEST = 120, 240
"""Steps on which candidates without a season are judged, and to which they are fitted."""
_UPPER = 0.9
"""Share of cases in which the upper bound shall hold."""
_MOST_SPREAD = 0.5
"""Of the level, from the forecast to its upper bound: jumps are the burst detector's business."""
_BETTER = 0.95
"""A richer model must cost less than this share of what a simpler one does."""


def fit(history: History) -> tuple[Fit, ...]:
    """Return the best model of each series; the coarse one only if it has something that recurs to tell.

    Args:
        history: of which enough is known: see `forecast.follow`.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of fits that do not converge: their candidates are judged all the same
        fine = _best(history.fine)
        coarse = _best(history.coarse) if len(history.coarse.values) >= _FEWEST_CYCLES * 144 else None
    found = [fine] if fine is not None else []
    return (*found, coarse) if coarse is not None and coarse.season else tuple(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Past:
    """Closed steps without gaps, or what of them lies before a moment."""

    values: Floats
    step_s: float
    end: int
    """Number of the last step."""

    def before(self, unseen: int) -> "_Past":
        """Return the past as it was so many steps ago."""
        return _Past(values=self.values[: len(self.values) - unseen], step_s=self.step_s, end=self.end - unseen)


_Make = Callable[[_Past], Fit]


def _best(series: Series) -> Fit | None:
    values = np.array(series.filled())
    if len(values) < _FEWEST or series.open_index is None:
        return None
    past = _Past(values=values, step_s=series.step_s, end=series.open_index - 1)
    chosen: _Make = _level
    unseen, least = _tested(values), 1.0
    for make, tested in _candidates(past):
        plain = _cost(_errors(_level(past.before(tested)), past))
        cost = _cost(_errors(make(past.before(tested)), past))
        if plain > 0 and cost / plain < _BETTER * least:
            chosen, unseen, least = make, tested, cost / plain
    errors = _errors(chosen(past.before(unseen)), past)
    fresh = chosen(past)
    most = _MOST_SPREAD * max(fresh.at(past.end + 1), float(np.mean(past.values[-4:])))
    return replace(fresh, spread=min(most, max(0.0, float(np.quantile(errors, _UPPER)))))


def _candidates(past: _Past) -> list[tuple[_Make, int]]:
    """Return models beside the level, and how many of the last steps each shall foretell to be judged."""
    tested = _tested(past.values)
    found: list[tuple[_Make, int]] = []
    if float(np.ptp(past.values[-_LATEST:])) > 0 and len(past.values) - tested >= _FEWEST:
        found.append((_trend, tested))
    for period in _periods(past.values, past.step_s):
        unseen = min(period, len(past.values) - _FEWEST_CYCLES * period)
        if unseen >= _TRIED * period:
            found.append((partial(_seasonal, period=period), unseen))
    return found


def _tested(values: Floats) -> int:
    return min(_TESTED, len(values) // 3)


def _periods(values: Floats, step_s: float) -> list[int]:
    """Return cycles to try, in steps: the usual ones, and the one that shows most."""
    found = [round(cycle / step_s) for cycle in _CYCLES_S.get(step_s, ())]
    longest = len(values) // (_FEWEST_CYCLES + 1)
    if longest > _SHORTEST and float(np.std(values)) > 0:
        centred = values - values.mean()
        spectrum = np.abs(np.fft.rfft(centred, 2 * len(values))) ** 2
        alike = np.fft.irfft(spectrum)[: longest + 1] / (len(values) - np.arange(longest + 1))
        alike = alike / alike[0]
        dip = int(np.argmax(alike < 0)) if bool((alike < 0).any()) else longest
        if dip < longest:
            lag = max(_SHORTEST, dip + int(np.argmax(alike[dip:])))
            if alike[lag] >= _SHOWS and all(abs(lag - period) > 2 for period in found):
                found.append(lag)
    return found


def _level(past: _Past) -> Fit:
    """Return the mean of the last steps as the level, followed quickly."""
    return Fit(
        model="level",
        step_s=past.step_s,
        at_index=past.end,
        level=float(np.mean(past.values[-4:])),
        level_weight=0.4,
    )


def _trend(past: _Past) -> Fit:
    """Return a level with a damped trend (Holt), its weights estimated."""
    model = ExponentialSmoothing(
        past.values[-_LATEST:], trend="add", damped_trend=True, initialization_method="heuristic"
    )
    result = model.fit(use_brute=False)
    weights = result.params
    return Fit(
        model="damped trend",
        step_s=past.step_s,
        at_index=past.end,
        level=float(result.level[-1]),
        trend=float(result.trend[-1]),
        damping=min(0.98, float(weights["damping_trend"])),
        level_weight=float(weights["smoothing_level"]),
        trend_weight=float(weights["smoothing_trend"]),
    )


def _seasonal(past: _Past, *, period: int) -> Fit:
    """Return what recurs, on a level that is followed slowly: what recurs shall not be taken for a new level."""
    kept = past.values[-(len(past.values) // period) * period :]
    numbers = past.end - len(kept) + 1 + np.arange(len(kept))
    season = np.empty(period)
    season[numbers[-period:] % period] = _decomposed(kept, period)[-period:]
    rest = kept - season[numbers % period]
    slow = max(4, period // 12)
    return Fit(
        model=f"recurs each {period * past.step_s / 3600:.3g} h",
        step_s=past.step_s,
        at_index=past.end,
        level=float(np.mean(rest[-slow:])),
        level_weight=1.0 / slow,
        season=tuple(season.tolist()),
    )


def _decomposed(values: Floats, period: int) -> Floats:
    """Return what recurs; smooth curves are computed at every tenth of their width and interpolated, as R does it."""
    jump = max(1, period // 10)
    found: Floats = STL(values, period=period, trend_jump=jump, low_pass_jump=jump).fit().seasonal
    return found


# Judging by the past


def _errors(candidate: Fit, past: _Past) -> Floats:
    """Return what came less what was foretold a few steps before, over the part that a candidate has not seen."""
    part = past.values[len(past.values) - (past.end - candidate.at_index) :].tolist()
    found = []
    for value, later in zip(part, part[_AHEAD:], strict=False):
        candidate = candidate.followed((value,))
        found.append(later - candidate.at(candidate.at_index + _AHEAD))
    return np.array(found or [0.0])


def _cost(errors: Floats) -> float:
    """Return the mean pinball loss of errors, each what came less what was foretold."""
    return float(np.mean(np.where(errors > 0, _UPPER * errors, (_UPPER - 1) * errors)))
