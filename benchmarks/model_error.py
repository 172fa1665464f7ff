"""How far the iteration model lies from measurements that it has not seen.

Each set is halved at random, many times; fitted on one half, tested on the other, both ways. The bars are on the median
over all halves; p95 and maximum are figures. So are two kinder tests: on every second point of a sweep, and on the very
points that were fitted, which shows how much of the error is the measurements' own scatter. Splitwise's and DistServe's
bars are on the median over all their sets, prefill and decode apart.

The model's shape and the accelerator are known for all of these sets, so the fit may follow first principles. The
roofline alone, which has seen no measurement, is compared with all points. `all_but_one` fits to all points but the one
that it is tested on: what scatter leaves to the best-informed fit, against which the halves can be judged.

Nobody published measurements of mixed steps, a prompt beside decoding sequences. AIConfigurator estimates them from
tables of measured operators; coefficients fitted to its prefills and decode steps alone are compared with that.
"""

import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from benchmarks.harness import Run, main
from benchmarks.peer_answers import Answers
from swingpool.aiconfigurator import points
from swingpool.aiconfigurator.client import AIConfiguratorError
from swingpool_control.engine import facts, held_out, roofline
from swingpool_control.engine.fit import fit, predict, relative_errors
from swingpool_control.engine.held_out import Errors
from swingpool_control.engine.linear import StepCost
from swingpool_control.engine.measured import formats
from swingpool_control.engine.measured.point import MeasuredSet, Phase

DYNAMO = tuple(
    f"profiles/dynamo_H200_TP1P_TP1D/selected_{phase}_interpolation/raw_data.npz" for phase in ("prefill", "decode")
)
DISTSERVE = tuple(f"profiles/distserve_profiler-a100-80g.{engine}.json" for engine in ("distserve", "vllm"))
SPLITWISE = ("splitwise/perf_model.csv",)
LIMITS = {
    ("dynamo", Phase.PREFILL): 0.02,
    ("dynamo", Phase.DECODE): 0.04,
    ("splitwise", Phase.PREFILL): 0.06,
    ("splitwise", Phase.DECODE): 0.06,
    ("distserve", Phase.PREFILL): 0.06,
    ("distserve", Phase.DECODE): 0.06,
}
DESCRIBED = {
    "dynamo": ("llama-3.1-8b", "h200", 1.0),
    "bloom-176b": ("bloom-176b", None, 2.0),
    "llama2-70b": ("llama-2-70b", None, 2.0),
    "opt-13b": ("opt-13b", "a100-80gb", 2.0),
    "opt-66b": ("opt-66b", "a100-80gb", 2.0),
}
"""Part of a set's name to model, accelerator (None: the set's name tells) and bytes per weight."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """What AIConfigurator is asked about, and by which names it is known here."""

    model: str
    system: str
    shape: str
    accelerator: str
    size: int
    weight_bytes: float


MIXED = (
    Peer(
        model="meta-llama/Meta-Llama-3.1-8B",
        system="h200_sxm",
        shape="llama-3.1-8b",
        accelerator="h200",
        size=1,
        weight_bytes=2.0,
    ),
    Peer(
        model="Qwen/Qwen3-32B-FP8", system="h100_sxm", shape="qwen3-32b", accelerator="h100", size=2, weight_bytes=1.0
    ),
)
MIXED_LIMIT = 0.15
HALVES, HALVES_QUICK = 200, 20


def measure(run: Run) -> None:
    """Fit and test every set of every source."""
    ratios: dict[Phase, list[float]] = {Phase.PREFILL: [], Phase.DECODE: []}
    for form, names in (("dynamo", DYNAMO), ("splitwise", SPLITWISE), ("distserve", DISTSERVE)):
        files = run.data(*names)
        if files is None:
            continue
        sets = [found for found in formats.read(form, files) if found.measured]
        for phase, found in _roofline_ratios(sets).items():
            ratios[phase] += found
            _roofline(run, f"roofline_{form}_{phase}", found)
        errors = [_errors(run, form, found) for found in sets]
        _kinder(run, form, sets)
        if form == "dynamo":
            _scatter(run, form, sets[0])
        for phase in (Phase.PREFILL, Phase.DECODE):
            value = _figures(run, form, phase, [found[phase] for found in errors])
            run.at_most(f"{form}_{phase}_median_error", value, LIMITS[form, phase])
    for phase, found in ratios.items():
        if found:
            _roofline(run, f"roofline_all_{phase}", found)
    _mixed(run)


def _mixed(run: Run) -> None:
    """Compare iterations that do both, by coefficients that have seen none, with AIConfigurator's estimates."""
    worst = 0.0
    try:
        with Answers() as answers:
            for peer in MIXED:
                measured, _ = points.measured_set(
                    answers.ask, model=peer.model, system=peer.system, tensor_parallel_size=peer.size
                )
                pure = [point for point in measured.points if point.phase is not Phase.MIXED]
                principles = roofline.step_cost(
                    facts.shape(peer.shape),
                    facts.accelerator(peer.accelerator),
                    tensor_parallel_size=peer.size,
                    weight_bytes=peer.weight_bytes,
                )
                step = fit(pure, max_batched_tokens=measured.max_batched_tokens, first_principles=principles)
                errors = relative_errors(step, measured.of(Phase.MIXED), max_batched_tokens=measured.max_batched_tokens)
                worst = max(worst, float(errors.max()))
                run.figures[f"mixed_{peer.shape}_{peer.accelerator}"] = {
                    "points": len(errors),
                    "median": round(float(np.median(errors)), 4),
                    "max": round(float(errors.max()), 4),
                }
                run.say(f"mixed steps, {measured.name}: {run.figures[f'mixed_{peer.shape}_{peer.accelerator}']}")
    except AIConfiguratorError as error:
        run.figures["mixed_steps"] = "not tested: nobody measured any, and AIConfigurator's estimates are not at hand"
        run.skipped.append(str(error))
        run.say(f"skipped: mixed steps: {error}")
        return
    run.at_most("mixed_steps_worst_difference_from_aiconfigurator", worst, MIXED_LIMIT)


def _errors(run: Run, form: str, measured: MeasuredSet) -> Mapping[Phase, Errors]:
    halves = HALVES_QUICK if run.quick else HALVES
    errors = held_out.random_halves(
        measured, halves=halves, rng=np.random.default_rng(run.seed), first_principles=_first_principles(measured)
    )
    for phase, found in errors.items():
        run.say(
            f"{form} {measured.name} {phase}: median {found.median:.2%}, p95 {found.p95:.1%}, max {found.worst:.1%}, "
            f"worst half {found.worst_half:.1%}"
        )
    return errors


def _kinder(run: Run, form: str, sets: Iterable[MeasuredSet]) -> None:
    """Note the medians of the two kinder tests, over all sets."""
    for phase in (Phase.PREFILL, Phase.DECODE):
        second, fitted = [], []
        for measured in sets:
            budget = measured.max_batched_tokens
            roof = _first_principles(measured)
            step = fit(measured.points, max_batched_tokens=budget, first_principles=roof)
            second.append(held_out.every_second(measured, first_principles=roof)[phase].median)
            fitted.append(np.median(relative_errors(step, measured.of(phase), max_batched_tokens=budget)))
        run.figures[f"{form}_{phase}_kinder_medians"] = {
            "every_second_point": round(float(np.median(second)), 4),
            "fitted_points": round(float(np.median(fitted)), 4),
        }
        run.say(f"{form} {phase}, kinder: {run.figures[f'{form}_{phase}_kinder_medians']}")


def _roofline_ratios(sets: Iterable[MeasuredSet]) -> Mapping[Phase, list[float]]:
    """Return predicted over measured time of every point."""
    ratios: dict[Phase, list[float]] = {Phase.PREFILL: [], Phase.DECODE: []}
    for measured in sets:
        step = _first_principles(measured)
        for phase, found in ratios.items():
            own = measured.of(phase)
            predicted = predict(step, own, max_batched_tokens=measured.max_batched_tokens)
            found += [float(s) / point.seconds for s, point in zip(predicted, own, strict=True)]
    return ratios


def _first_principles(measured: MeasuredSet) -> StepCost:
    model, accelerator, weight_bytes = next(what for key, what in DESCRIBED.items() if key in measured.name)
    return roofline.step_cost(
        facts.shape(model),
        facts.accelerator(accelerator or ("h100" if "h100" in measured.name else "a100-80gb")),
        tensor_parallel_size=measured.tensor_parallel_size,
        weight_bytes=weight_bytes,
    )


def _scatter(run: Run, form: str, measured: MeasuredSet) -> None:
    """Note what a fit to all points but one misses that one by."""
    for phase in (Phase.PREFILL, Phase.DECODE):
        found = held_out.all_but_one(measured, phase=phase, first_principles=_first_principles(measured))
        run.figures[f"{form}_{phase}_all_but_one"] = {"median": round(found.median, 4), "max": round(found.worst, 4)}
        run.say(f"{form} {phase}, fitted to all points but the one tested: {found.median:.2%}, max {found.worst:.1%}")


def _roofline(run: Run, name: str, ratios: list[float]) -> None:
    errors = np.abs(np.array(ratios) - 1)
    run.figures[name] = {
        "median": round(float(np.median(errors)), 3),
        "p95": round(float(np.quantile(errors, 0.95)), 3),
        "max": round(float(errors.max()), 3),
        "predicted_over_measured_median": round(float(np.median(ratios)), 3),
    }
    run.say(f"{name}: {run.figures[name]}")


def _figures(run: Run, form: str, phase: Phase, errors: Iterable[Errors]) -> float:
    found = list(errors)
    value = float(np.median([error.median for error in found]))
    run.figures[f"{form}_{phase}"] = {
        "sets": len(found),
        "points": sum(error.points for error in found),
        "median": round(value, 4),
        "worst_set_median": round(max(error.median for error in found), 4),
        "p95": round(float(np.median([error.p95 for error in found])), 4),
        "max": round(max(error.worst for error in found), 4),
        "worst_half_median": round(max(error.worst_half for error in found), 4),
    }
    return value


if __name__ == "__main__":
    sys.exit(main("model_error", measure, takes="two to six minutes"))
