"""Slow corrections of a performance model by what a live cluster shows.

A profile was measured on some machine, with some version of the engine; the workers at hand are a little slower or
faster. Per role there is one factor on time. It follows the ratio of observed to predicted time, in logarithms, with a
time constant of minutes, so that a burst does not move it; a ratio near 1 does not move it at all; and it stays within
bounds, because what lies further off is no inaccuracy but another machine or a fault, which a person should see.

Whatever is unknown, too old or stands on few values leaves the factors as they are: no evidence is not evidence of 1.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from swingpool_control import names
from swingpool_control.engine.linear import LinearModel
from swingpool_control.figures import Figure, Unknown

LEAST, MOST = 0.67, 1.5
"""Bounds of a factor."""
DEAD_BAND = 0.05
"""Relative difference between observed and corrected time that is none."""
TIME_CONSTANT_S = 600.0
"""Seconds after which two thirds of a lasting difference are taken over."""
LONGEST_STEP_S = 60.0
"""Counted between two updates at most: a manager that was away has not watched meanwhile."""
FEWEST_VALUES = 50
"""Observed values that a ratio must stand on."""
FARTHEST = 4.0
"""A ratio beyond this, or below its inverse, is a fault or another workload, not an inaccuracy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What one role's work took, and what the uncorrected model says of the same work."""

    observed_s: Figure
    predicted_s: Figure
    values: int
    """How many observed values it stands on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """Factors on the time of each role's work, 1 for what the model says; serialisable, so that it can be replayed."""

    prefill: float = 1.0
    decode: float = 1.0
    at_unix_s: float | None = None
    """Of the last update; None before the first."""
    why: Mapping[str, str] = field(default_factory=dict)
    """By role, why its factor did not move at the last update; empty where it did."""

    @property
    def neutral(self) -> bool:
        """Whether it changes nothing."""
        return self.prefill == 1.0 and self.decode == 1.0


def update(memory: Calibration, evidence: Mapping[str, Evidence], *, now_unix_s: float) -> Calibration:
    """Return the factors after one more look.

    Args:
        memory: the factors until now.
        evidence: by role; a role without evidence keeps its factor.
        now_unix_s: the time.
    """
    passed_s = 0.0 if memory.at_unix_s is None else min(LONGEST_STEP_S, max(0.0, now_unix_s - memory.at_unix_s))
    gain = 1 - math.exp(-passed_s / TIME_CONSTANT_S)
    why: dict[str, str] = {}
    factors = {names.ROLE_PREFILL: memory.prefill, names.ROLE_DECODE: memory.decode}
    for role, factor in factors.items():
        ratio = _ratio(evidence.get(role))
        if isinstance(ratio, Unknown):
            why[role] = ratio.why
        elif abs(ratio / factor - 1) <= DEAD_BAND:
            why[role] = f"within {DEAD_BAND:.0%} of what was predicted"
        else:
            factors[role] = min(MOST, max(LEAST, factor * (ratio / factor) ** gain))
    return replace(
        memory,
        prefill=factors[names.ROLE_PREFILL],
        decode=factors[names.ROLE_DECODE],
        at_unix_s=now_unix_s,
        why=why,
    )


def corrected(model: LinearModel, calibration: Calibration) -> LinearModel:
    """Return the model with the factors applied: prefill's on what prompts cost, decode's on all else."""
    if calibration.neutral:
        return model
    cost = model.step
    prefill, decode = calibration.prefill, calibration.decode
    # The base is in every iteration and has decode's factor: what prompts add makes up for it.
    prefill_base_s = max(0.0, prefill * (cost.base_s + cost.prefill_base_s) - decode * cost.base_s)
    return replace(
        model,
        step=replace(
            cost,
            base_s=decode * cost.base_s,
            sequence_s=decode * cost.sequence_s,
            over_sequence_s=decode * cost.over_sequence_s,
            context_token_s=decode * cost.context_token_s,
            prefill_base_s=prefill_base_s,
            prefill_token_s=prefill * cost.prefill_token_s,
            prefill_over_token_s=prefill * cost.prefill_over_token_s,
            prefill_context_token2_s=prefill * cost.prefill_context_token2_s,
            prefill_curve=cost.prefill_curve.scaled(prefill) if cost.prefill_curve else None,
        ),
    )


def _ratio(evidence: Evidence | None) -> Figure:
    """Return observed over predicted time, or why it says nothing."""
    if evidence is None:
        return Unknown("nothing was observed")
    observed, predicted = evidence.observed_s, evidence.predicted_s
    if isinstance(observed, Unknown):
        return observed
    if isinstance(predicted, Unknown):
        return predicted
    if evidence.values < FEWEST_VALUES:
        return Unknown(f"{evidence.values} values were observed; it takes {FEWEST_VALUES}")
    if not (math.isfinite(observed) and math.isfinite(predicted)) or observed <= 0 or predicted <= 0:
        return Unknown(f"observed {observed} s, predicted {predicted} s")
    ratio = observed / predicted
    if not 1 / FARTHEST <= ratio <= FARTHEST:
        return Unknown(f"observed {ratio:.3g} times what was predicted: no inaccuracy, but another workload or a fault")
    return ratio
