"""How far a fit can be trusted: fitted on half of the measurements, tested on the other half, many times over."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from swingpool_control.engine.fit import FEWEST_POINTS, Array, fit, relative_errors
from swingpool_control.engine.linear import StepCost
from swingpool_control.engine.measured.point import MeasuredSet, Measurement, MeasurementError, Phase
from swingpool_control.engine.profile import FitError, Range


@dataclass(frozen=True, slots=True, kw_only=True)
class Errors:
    """Relative errors of one phase on what the fit had not seen, over all halves."""

    points: int
    """Measurements of the phase."""
    median: float
    p95: float
    worst: float
    worst_half: float
    """The largest median of one half."""


def random_halves(
    measured: MeasuredSet,
    *,
    halves: int,
    rng: np.random.Generator,
    max_batched_tokens: int | None = None,
    first_principles: StepCost | None = None,
) -> Mapping[Phase, Errors]:
    """Return the held-out errors of each phase over random halves; each split is used both ways.

    Args:
        measured: the measurements, six or more of each phase.
        halves: how many halves are fitted.
        rng: where the splits come from.
        max_batched_tokens: the token budget per iteration, if not the set's.
        first_principles: the roofline's coefficients, if model and accelerator are known.

    Raises:
        MeasurementError: there are too few measurements to halve.
    """
    found: dict[Phase, list[Array]] = defaultdict(list)
    first: list[Measurement] = []
    second: list[Measurement] = []
    for number in range(halves):
        if number % 2 == 0:
            first, second = _split(measured, rng)
        learnt, unseen = (first, second) if number % 2 == 0 else (second, first)
        _test(learnt, unseen, max_batched_tokens or measured.max_batched_tokens, first_principles, found)
    return _summary(measured, found)


def every_second(measured: MeasuredSet, *, first_principles: StepCost | None = None) -> Mapping[Phase, Errors]:
    """Return the errors at every second measurement of each phase, by time, of a fit to those between and the first."""
    learnt: list[Measurement] = []
    unseen: list[Measurement] = []
    for phase in Phase:
        ordered = sorted(measured.of(phase), key=lambda point: point.seconds)
        learnt += ordered[::2]
        unseen += ordered[1::2]
    found: dict[Phase, list[Array]] = defaultdict(list)
    _test(learnt, unseen, measured.max_batched_tokens, first_principles, found)
    return _summary(measured, found)


def all_but_one(measured: MeasuredSet, *, phase: Phase, first_principles: StepCost | None = None) -> Errors:
    """Return the errors at each measurement of a phase of a fit to all others: the least that their scatter allows."""
    found: dict[Phase, list[Array]] = defaultdict(list)
    for left_out in measured.of(phase):
        learnt = [point for point in measured.points if point is not left_out]
        _test(learnt, [left_out], measured.max_batched_tokens, first_principles, found)
    return _summary(measured, found)[phase]


def fit_error(errors: Mapping[Phase, Errors]) -> FitError:
    """Return held-out errors in the form that a profile carries."""
    figures = {}
    for phase, found in errors.items():
        for name, value in (("typical", found.median), ("p95", found.p95), ("worst", found.worst)):
            figures[f"{phase}_{name}"] = round(value, 4)
    return FitError(**figures)


def fitted_range(measured: MeasuredSet) -> Range:
    """Return where the measurements lie."""
    prompts = [point.prompt_tokens for point in measured.points if point.prompts]
    decodes = [point for point in measured.points if point.sequences]
    return Range(
        prompt_tokens=_span(prompts),
        context_tokens=_span([point.context_tokens for point in decodes]),
        sequences=_span([max(1.0, point.sequences) for point in decodes]),
    )


def _span(values: list[float]) -> tuple[int, int] | None:
    return (round(min(values)), round(max(values))) if values else None


def _split(measured: MeasuredSet, rng: np.random.Generator) -> tuple[list[Measurement], list[Measurement]]:
    first: list[Measurement] = []
    second: list[Measurement] = []
    for phase in Phase:
        points = measured.of(phase)
        if phase is not Phase.MIXED and len(points) < 2 * FEWEST_POINTS:
            raise MeasurementError(
                f"{measured.name}: {len(points)} {phase} measurements; to hold half of them back takes "
                f"{2 * FEWEST_POINTS} or more"
            )
        order = rng.permutation(len(points))
        first += [points[i] for i in order[: len(points) // 2]]
        second += [points[i] for i in order[len(points) // 2 :]]
    return first, second


def _test(
    learnt: list[Measurement],
    unseen: list[Measurement],
    budget: int,
    first_principles: StepCost | None,
    found: dict[Phase, list[Array]],
) -> None:
    step = fit(learnt, max_batched_tokens=budget, first_principles=first_principles)
    for phase in Phase:
        points = [point for point in unseen if point.phase is phase]
        if points:
            found[phase].append(relative_errors(step, points, max_batched_tokens=budget))


def _summary(measured: MeasuredSet, found: Mapping[Phase, list[Array]]) -> Mapping[Phase, Errors]:
    summary = {}
    for phase, halves in found.items():
        errors = np.concatenate(halves)
        summary[phase] = Errors(
            points=len(measured.of(phase)),
            median=float(np.median(errors)),
            p95=float(np.quantile(errors, 0.95)),
            worst=float(errors.max()),
            worst_half=max(float(np.median(half)) for half in halves),
        )
    return summary
