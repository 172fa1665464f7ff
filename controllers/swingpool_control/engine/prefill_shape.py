"""Prefill by the shape of first principles, for what few measurements cannot tell.

Eight measured prompts with some scatter do not fix a base, a slope and a curvature. Where the model's shape and its
accelerator are known, the roofline says how the arithmetic grows with a prompt, so there are two more ways to explain
measurements beside free coefficients:

- **scaled**: a base, and the roofline's time times one factor;
- **curve**: at each measured size the roofline's time is corrected by what was measured there, and in between by what
  lies around it: a Gaussian process over the logarithm of the ratio, which forgets over some `FORGETS` e-foldings of
  size. It follows an engine whose time per token jumps with size.

The simplest that explains the measurements is taken. Free coefficients must leave less than a quarter of the scatter
that the scaled roofline leaves, for each measurement that they do not use up; and if what is left is more than
`TOLERATED`, it is no scatter of measurements, and the curve follows them. Leaving out one measurement after the other
would ask the same question more directly, but of six or eight measurements its answer is too noisy to choose by.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt
from scipy.optimize import nnls

from swingpool_control.engine.curve import Curve
from swingpool_control.engine.linear import StepCost
from swingpool_control.engine.measured.point import Measurement

Array = npt.NDArray[np.float64]

RATIO_DEVIATION = 0.5
"""Of the logarithm of measured over predicted time, from one size to a far one."""
FORGETS = 6.0
"""E-foldings of size over which a ratio says something of another."""
NOISE = 0.02
"""Relative, of one measurement."""
BETWEEN = 3
"""Straight pieces between two measured sizes."""
BEYOND = 4.0
"""Times the smallest and the largest measured size to which the curve goes by itself."""
LINEAR_BEYOND = 1.345 * NOISE
"""Relative error beyond which a point pulls no harder: Huber's usual choice."""
TOLERATED = 0.05
"""Relative scatter about a formula that measurements may have."""
CLEARLY = 0.25
"""Of the scatter that a simpler formula leaves, what a richer one may leave."""
REWEIGHTINGS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompts:
    """Measured prefills that ran as one iteration each."""

    tokens: Array
    attention: Array
    """token^2, as `PerformanceModel.step_s` counts them."""
    seconds: Array


def prompts(points: Sequence[Measurement]) -> Prompts:
    """Return prefill measurements as arrays."""
    attention = [point.prompts * (point.prompt_tokens**2 - point.cached_tokens**2) / 2 for point in points]
    return Prompts(
        tokens=np.array([point.computed_tokens for point in points], dtype=np.float64),
        attention=np.array(attention, dtype=np.float64),
        seconds=np.array([point.seconds for point in points], dtype=np.float64),
    )


def best(measured: Prompts, free: StepCost, first_principles: StepCost) -> StepCost:
    """Return the coefficients whose prefill explains measurements best; decode stays as in `free`.

    Args:
        measured: prefills of one iteration each.
        free: coefficients fitted without first principles, to all phases.
        first_principles: the roofline's.
    """
    simple = scaled(measured, free, first_principles)
    scatter = _scatter(measured, simple, 2)
    free_scatter = _scatter(measured, free, 5 if free.prefill_over_token_s else 3)
    if free_scatter < CLEARLY * scatter:
        simple, scatter = free, free_scatter
    return simple if scatter <= TOLERATED else curved(measured, free, first_principles)


def seconds(cost: StepCost, tokens: Array, attention: Array) -> Array:
    """Return the time of one iteration for each prefill, by coefficients."""
    over = np.maximum(0.0, tokens - cost.prefill_knee_tokens)
    found = cost.base_s + cost.prefill_base_s + cost.prefill_token_s * tokens + cost.prefill_over_token_s * over
    if cost.prefill_curve is not None:
        curve = cost.prefill_curve
        found = found + np.array([curve.at(float(size)) for size in tokens])
    return np.asarray(found + cost.prefill_context_token2_s * attention, dtype=np.float64)


def scaled(measured: Prompts, free: StepCost, first_principles: StepCost) -> StepCost:
    """Return a base, and the roofline's time for prompts times one factor."""
    shape = _arithmetic(first_principles, measured.tokens)
    shape = shape + first_principles.prefill_context_token2_s * measured.attention
    base, factor = _robust(np.column_stack([np.ones_like(shape), shape]), measured.seconds)
    return replace(
        free,
        prefill_base_s=max(0.0, base - free.base_s),
        prefill_token_s=first_principles.prefill_token_s * factor,
        prefill_context_token2_s=first_principles.prefill_context_token2_s * factor,
        prefill_knee_tokens=first_principles.prefill_knee_tokens,
        prefill_over_token_s=first_principles.prefill_over_token_s * factor,
        prefill_curve=None,
    )


def curved(measured: Prompts, free: StepCost, first_principles: StepCost) -> StepCost:
    """Return the roofline's time, on top of the iteration's base, corrected size by size; attention stays as it is."""
    attention = first_principles.prefill_context_token2_s * measured.attention
    own = np.maximum(measured.seconds - attention, measured.seconds / 2)
    ratios = np.log(own / (free.base_s + _arithmetic(first_principles, measured.tokens)))
    places = np.log(measured.tokens)
    noise = NOISE**2 * np.eye(len(places))
    weights = np.linalg.solve(_covariance(places, places) + noise, ratios)
    sizes = _sizes(np.unique(measured.tokens))
    corrected = np.exp(_covariance(np.log(sizes), places) @ weights)
    total = np.maximum.accumulate((free.base_s + _arithmetic(first_principles, sizes)) * corrected)
    base = max(free.base_s, float(total[0]))
    return replace(
        free,
        prefill_base_s=base - free.base_s,
        prefill_token_s=0.0,
        prefill_context_token2_s=first_principles.prefill_context_token2_s,
        prefill_knee_tokens=0.0,
        prefill_over_token_s=0.0,
        prefill_curve=Curve(
            sizes=tuple(float(size) for size in sizes),
            seconds=tuple(max(0.0, float(value) - base) for value in total),
        ),
    )


def _arithmetic(cost: StepCost, tokens: Array) -> Array:
    """Return what prompt tokens cost in one iteration beside its base and attention."""
    over = np.maximum(0.0, tokens - cost.prefill_knee_tokens)
    return np.asarray(cost.prefill_token_s * tokens + cost.prefill_over_token_s * over, dtype=np.float64)


def _covariance(some: Array, others: Array) -> Array:
    distance = np.abs(some[:, None] - others[None, :])
    return np.asarray(1.0 + RATIO_DEVIATION**2 * np.exp(-distance / FORGETS), dtype=np.float64)


def _sizes(measured: Array) -> Array:
    """Return where the curve's pieces end: at measured sizes, some between them, and one beyond either end."""
    between = [np.geomspace(low, high, BETWEEN + 1)[:-1] for low, high in pairwise(measured)]
    return np.concatenate([[measured[0] / BEYOND], *between, [measured[-1], measured[-1] * BEYOND]])


def _robust(columns: Array, measured: Array) -> list[float]:
    """Minimise Huber's loss of the relative errors by reweighted non-negative least squares."""
    relative = columns / measured[:, None]
    scale = relative.max(axis=0)
    scale[scale == 0] = 1.0
    relative = relative / scale
    weights = np.ones(len(measured))
    solution = np.zeros(len(scale))
    for _ in range(REWEIGHTINGS):
        before = solution
        solution = nnls(relative * weights[:, None], weights, maxiter=1000)[0]
        errors = np.abs(relative @ solution - 1.0)
        weights = np.sqrt(np.minimum(1.0, LINEAR_BEYOND / np.maximum(errors, 1e-9)))
        if np.allclose(solution, before, rtol=1e-6, atol=1e-12):
            break
    return [float(value) for value in solution / scale]


def _scatter(measured: Prompts, cost: StepCost, coefficients: int) -> float:
    """Return the relative error of one measurement, by Huber's loss, for each that no coefficient has used up."""
    errors = np.abs(seconds(cost, measured.tokens, measured.attention) / measured.seconds - 1.0)
    losses = np.where(errors <= LINEAR_BEYOND, errors**2, LINEAR_BEYOND * (2 * errors - LINEAR_BEYOND))
    return float(np.sqrt(losses.sum() / max(len(errors) - coefficients, 0.5)))
