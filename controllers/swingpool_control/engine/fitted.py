"""A whole profile from measurements: coefficients, range, held-out error, and what the measurements do not tell."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from swingpool_control.engine.fit import fit
from swingpool_control.engine.held_out import fit_error, fitted_range, random_halves
from swingpool_control.engine.linear import StepCost
from swingpool_control.engine.measured.point import MeasuredSet, MeasurementError
from swingpool_control.engine.profile import (
    FORMAT,
    Accelerator,
    KVCache,
    Layout,
    Power,
    Profile,
    Provenance,
    Step,
    Transfer,
)

HALVES = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """What measurements of iterations do not tell of a worker; None is taken from the measurements."""

    name: str
    models: tuple[str, ...]
    products: tuple[str, ...]
    """Product labels of the accelerator, as nodes carry them."""
    kv_bytes_per_token: float
    """Over all layers and all accelerators of the worker."""
    link_bytes_per_s: float
    link_latency_s: float
    startup_s: float
    summary: str | None = None
    accelerators: int | None = None
    tensor_parallel_size: int | None = None
    max_batched_tokens: int | None = None
    """The token budget per iteration when it was measured."""
    max_sequences: int | None = None
    kv_capacity_tokens: int | None = None
    source: str | None = None
    licence: str | None = None
    assumed: tuple[str, ...] = ()
    """Which of all these nobody measured, in words."""
    first_principles: StepCost | None = None
    """The roofline's coefficients, if model and accelerator are known: then prefill may follow their shape."""
    power: Power | None = None
    basis: Literal["operator-tables"] | None = None
    """None: measurements or published formulas, as the set says."""


def profile(measured: MeasuredSet, described: Described, *, rng: np.random.Generator) -> Profile:
    """Return the profile that fits the measurements.

    Args:
        measured: the measurements.
        described: the rest of what a profile says.
        rng: where the halves come from by which the error is told.

    Raises:
        MeasurementError: there are too few measurements; or neither they nor the description tell something needed.
    """
    capacity = described.kv_capacity_tokens or measured.kv_capacity_tokens
    source, licence = described.source or measured.source, described.licence or measured.licence
    for value, what, option in (
        (capacity, "how many tokens of KV cache a worker holds", "--kv-capacity-tokens"),
        (source, "where the measurements come from", "--source"),
        (licence, "under which licence they are", "--licence"),
    ):
        if not value:
            raise MeasurementError(f"{measured.name}: does not tell {what}; say it with {option}")
    budget = described.max_batched_tokens or measured.max_batched_tokens
    roofline = described.first_principles
    step = fit(measured.points, max_batched_tokens=budget, first_principles=roofline)
    errors = random_halves(measured, halves=HALVES, rng=rng, max_batched_tokens=budget, first_principles=roofline)
    return Profile(
        format=FORMAT,
        name=described.name,
        summary=described.summary or f"{described.models[0]} on {described.products[0]}, fitted to measurements",
        models=list(described.models),
        accelerator=Accelerator(
            products=list(described.products), count=described.accelerators or measured.accelerators
        ),
        layout=Layout(
            tensor_parallel_size=described.tensor_parallel_size or measured.tensor_parallel_size,
            max_batched_tokens=budget,
            max_sequences=described.max_sequences or measured.max_sequences,
        ),
        step=Step.of(step),
        kv=KVCache(capacity_tokens=capacity or 0, bytes_per_token=described.kv_bytes_per_token),
        transfer=Transfer(bytes_per_s=described.link_bytes_per_s, latency_s=described.link_latency_s),
        startup_s=described.startup_s,
        power=described.power,
        provenance=Provenance(
            source=source,
            licence=licence,
            measured=measured.measured,
            basis=described.basis or ("published-fit" if measured.published_fit else "measurements"),
            fitted=fitted_range(measured),
            error=fit_error(errors),
            notes=[
                f"Fitted to the set {measured.name}",
                f"Errors are held out: fitted on {HALVES} random halves, tested on the others",
                *(["Prefill follows a curve through what was measured"] if step.prefill_curve else []),
                *measured.notes,
                *(f"Assumed: {what}" for what in described.assumed),
            ],
        ),
    )
