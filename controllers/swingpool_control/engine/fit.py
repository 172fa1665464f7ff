"""Coefficients of the iteration model from measurements: non-negative least squares of relative errors.

Relative, because an error of 5 ms is nothing for a long prompt and everything for a decode step. Robust, because tables
of measurements have bad points: an error beyond a small one counts linearly, not by its square (Huber's loss, by
reweighting). Non-negative, because more work must never look faster.

Only the command and sizing import this module: scipy has no place in the start of a worker or a picker.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.optimize import nnls

from swingpool_control.engine import prefill_shape
from swingpool_control.engine.curve import Curve
from swingpool_control.engine.linear import StepCost
from swingpool_control.engine.measured.point import Measurement, MeasurementError, Phase

Array = npt.NDArray[np.float64]

LEAST_BASE_S = 1e-6
"""No engine iterates in no time."""
FEWEST_POINTS = 3
"""Of each phase; with less there is nothing to fit."""
FEWEST_POINTS_FOR_KNEE = 6
KNEE_CANDIDATES = 12
LINEAR_BEYOND = 0.02
"""Relative error beyond which a point pulls no harder."""
REWEIGHTINGS = 20
EXACT = 1e-6
"""Relative errors below this are none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Knees:
    """Where prompt tokens and sequences begin to cost more; None where they do not."""

    prefill_tokens: float | None = None
    sequences: float | None = None


def fit(
    points: Sequence[Measurement], *, max_batched_tokens: int, first_principles: StepCost | None = None
) -> StepCost:
    """Return the coefficients that come closest to measured times.

    A knee is taken in only if it pays for its two coefficients by the Bayesian information criterion. With first
    principles, prefill may follow their shape instead; see `prefill_shape`.

    Args:
        points: prefill and decode measurements, three or more of each; mixed ones too, if there are any.
        max_batched_tokens: the engine's token budget per iteration when it was measured; longer prompts were chunked.
        first_principles: the roofline's coefficients, if model and accelerator are known.

    Raises:
        MeasurementError: there are too few points of a phase, or a mixed one does not fit into one iteration.
    """
    for phase in (Phase.PREFILL, Phase.DECODE):
        count = sum(point.phase is phase for point in points)
        if count < FEWEST_POINTS:
            raise MeasurementError(f"{count} {phase} measurements; a fit needs {FEWEST_POINTS} or more")
    knees = Knees()
    best = _solve(points, knees, max_batched_tokens)
    for phase, name in ((Phase.PREFILL, "prefill_tokens"), (Phase.DECODE, "sequences")):
        own = [point for point in points if point.phase is phase]
        if len(own) < FEWEST_POINTS_FOR_KNEE:
            continue
        tried = []
        for place in _candidates(own, max_batched_tokens):
            with_knee = Knees(
                prefill_tokens=place if name == "prefill_tokens" else knees.prefill_tokens,
                sequences=place if name == "sequences" else knees.sequences,
            )
            solved = _solve(points, with_knee, max_batched_tokens)
            tried.append((_loss(own, solved, with_knee, max_batched_tokens), place, with_knee, solved))
        if not tried:
            continue
        loss, _, with_knee, solved = min(tried, key=lambda found: found[:2])
        gain = len(own) * math.log(_loss(own, best, knees, max_batched_tokens) / loss)
        if gain > 2 * math.log(len(own)):
            knees, best = with_knee, solved
    return _shaped(_step_cost(best, knees), points, max_batched_tokens, first_principles)


def _shaped(free: StepCost, points: Sequence[Measurement], budget: int, first_principles: StepCost | None) -> StepCost:
    """Return the coefficients by the shape of first principles, if that explains prefill better."""
    prefills = [point for point in points if point.phase is Phase.PREFILL]
    if first_principles is None or any(point.computed_tokens > budget for point in prefills):
        return free
    return prefill_shape.best(prefill_shape.prompts(prefills), free, first_principles)


def predict(step: StepCost, points: Sequence[Measurement], *, max_batched_tokens: int) -> Array:
    """Return the seconds that coefficients give for each measurement."""
    knees = Knees(
        prefill_tokens=step.prefill_knee_tokens if step.prefill_over_token_s else None,
        sequences=step.sequence_knee if step.over_sequence_s else None,
    )
    coefficients = np.array(
        [
            step.base_s,
            step.prefill_base_s,
            step.prefill_token_s,
            step.prefill_context_token2_s,
            step.sequence_s,
            step.context_token_s,
            step.prefill_over_token_s,
            step.over_sequence_s,
        ]
    )
    seconds = np.asarray(_design(points, knees, max_batched_tokens) @ coefficients, dtype=np.float64)
    if step.prefill_curve is not None:
        seconds += np.array([_curve_s(step.prefill_curve, point, max_batched_tokens) for point in points])
    return seconds


def _curve_s(curve: Curve, point: Measurement, budget: int) -> float:
    full, rest = divmod(point.computed_tokens, budget)
    return full * curve.at(budget) + curve.at(rest)


def relative_errors(step: StepCost, points: Sequence[Measurement], *, max_batched_tokens: int) -> Array:
    """Return by what fraction the prediction misses each measurement, whichever way."""
    measured = np.array([point.seconds for point in points])
    return np.asarray(
        np.abs(predict(step, points, max_batched_tokens=max_batched_tokens) / measured - 1), dtype=np.float64
    )


def _design(points: Sequence[Measurement], knees: Knees, budget: int) -> Array:
    """One row per measurement: what each coefficient is multiplied with."""
    return np.array([_row(point, knees, budget) for point in points], dtype=np.float64)


def _row(point: Measurement, knees: Knees, budget: int) -> tuple[float, ...]:
    tokens = point.computed_tokens
    over_sequences = max(0.0, point.sequences - knees.sequences) if knees.sequences is not None else 0.0
    if point.phase is Phase.DECODE:
        return (1, 0, 0, 0, point.sequences, point.sequences * point.context_tokens, 0, over_sequences)
    if point.phase is Phase.MIXED and tokens > budget:
        raise MeasurementError(
            f"{point.origin}: a mixed step of {tokens:g} prompt tokens does not fit into an iteration of {budget}"
        )
    full, rest = divmod(tokens, budget)
    iterations = full + (1 if rest else 0)
    attention = point.prompts * (point.prompt_tokens**2 - point.cached_tokens**2) / 2
    over_tokens = 0.0
    if knees.prefill_tokens is not None:
        over_tokens = full * max(0.0, budget - knees.prefill_tokens) + max(0.0, rest - knees.prefill_tokens)
    context = point.sequences * point.context_tokens
    return (iterations, iterations, tokens, attention, point.sequences, context, over_tokens, over_sequences)


def _solve(points: Sequence[Measurement], knees: Knees, budget: int) -> Array:
    """Minimise Huber's loss of the relative errors by reweighted non-negative least squares."""
    measured = np.array([point.seconds for point in points])
    relative = _design(points, knees, budget) / measured[:, None]
    scale = relative.max(axis=0)
    scale[scale == 0] = 1.0
    target = 1.0 - relative[:, 0] * LEAST_BASE_S
    weights = np.ones(len(points))
    solution = np.zeros(len(scale))
    for _ in range(REWEIGHTINGS):
        before = solution
        solution = nnls(relative / scale * weights[:, None], target * weights, maxiter=1000)[0]
        errors = np.abs(relative / scale @ solution - target)
        weights = np.sqrt(np.minimum(1.0, LINEAR_BEYOND / np.maximum(errors, EXACT)))
        if np.allclose(solution, before, rtol=1e-6, atol=1e-12):
            break
    solution = solution / scale
    solution[0] += LEAST_BASE_S
    return np.asarray(solution, dtype=np.float64)


def _loss(points: Sequence[Measurement], solution: Array, knees: Knees, budget: int) -> float:
    measured = np.array([point.seconds for point in points])
    errors = np.maximum(np.abs(_design(points, knees, budget) @ solution / measured - 1), EXACT)
    return float(np.sum(np.where(errors <= LINEAR_BEYOND, errors**2, LINEAR_BEYOND * (2 * errors - LINEAR_BEYOND))))


def _candidates(points: Sequence[Measurement], budget: int) -> list[float]:
    """Places at which a knee could be seen: sizes that were measured, with two or more on each side."""
    sizes = sorted(
        {
            round(point.sequences if point.phase is Phase.DECODE else min(point.computed_tokens, budget))
            for point in points
        }
    )[1:-1]
    step = max(1, math.ceil(len(sizes) / KNEE_CANDIDATES))
    return [float(size) for size in sizes[::step]]


def _step_cost(solution: Array, knees: Knees) -> StepCost:
    (base, prefill_base, token, attention, sequence, context, over_token, over_sequence) = (float(x) for x in solution)
    return StepCost(
        base_s=base,
        prefill_base_s=prefill_base,
        prefill_token_s=token,
        prefill_context_token2_s=attention,
        sequence_s=sequence,
        context_token_s=context,
        prefill_knee_tokens=knees.prefill_tokens or 0.0,
        prefill_over_token_s=over_token,
        sequence_knee=knees.sequences or 0.0,
        over_sequence_s=over_sequence,
    )
