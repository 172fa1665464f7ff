"""Performance profiles: a model's coefficients as data, with where they come from and how far they can be trusted.

A profile is a JSON file (`format` names its version) for one model on one accelerator in one engine layout. A few are
built in, under `profiles/`; users bring their own by file or ConfigMap. Version 2 adds what prompt tokens cost as a
curve, how times between tokens spread, and power; whatever a profile of version 1 says, version 2 says the same way, so
both are read.
"""

import json
import re
from collections.abc import Iterator
from importlib import resources
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from swingpool_control.engine.curve import Curve
from swingpool_control.engine.linear import COEFFICIENTS, LinearModel, StepCost

FORMAT = "swingpool-profile/v2"
FORMATS = ("swingpool-profile/v1", FORMAT)
"""Versions that are read; new profiles are written in the last."""

NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
NotNegativeInt = Annotated[int, Field(ge=0)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class ProfileError(ValueError):
    """A profile that cannot be used: names the file, the field and what is wrong with it."""


class Part(BaseModel):
    """Base of every part of a profile: unknown fields are refused, so that a misspelt one is told."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Accelerator(Part):
    """What it was measured on."""

    products: list[str]
    """Product labels as nodes carry them; matched without regard to case."""
    count: Annotated[int, Field(ge=1)] = 1


class Layout(Part):
    """How the engine was laid out."""

    tensor_parallel_size: Annotated[int, Field(ge=1)] = 1
    kv_cache_dtype: str = "auto"
    max_batched_tokens: Annotated[int, Field(ge=1)]
    max_sequences: Annotated[int, Field(ge=1)]


class StepCurve(Part):
    """Seconds by size; see `Curve`."""

    sizes: list[Positive]
    seconds: list[NotNegative]

    @model_validator(mode="after")
    def _rises(self) -> "StepCurve":
        self.curve()
        return self

    def curve(self) -> Curve:
        """Return it as the core computes with it."""
        return Curve(sizes=tuple(self.sizes), seconds=tuple(self.seconds))


class Step(Part):
    """Coefficients of one iteration; see `StepCost`."""

    base_s: Positive
    prefill_base_s: NotNegative
    prefill_token_s: NotNegative
    prefill_context_token2_s: NotNegative
    sequence_s: NotNegative
    context_token_s: NotNegative
    prefill_knee_tokens: NotNegativeInt = 0
    prefill_over_token_s: NotNegative = 0.0
    sequence_knee: NotNegativeInt = 0
    over_sequence_s: NotNegative = 0.0
    prefill_curve: StepCurve | None = None

    @classmethod
    def of(cls, cost: StepCost) -> "Step":
        """Return coefficients as a profile says them, with five figures each."""
        curve = cost.prefill_curve
        return cls(
            **{name: _rounded(getattr(cost, name)) for name in COEFFICIENTS},
            prefill_curve=curve
            and StepCurve(
                sizes=[_rounded(size) for size in curve.sizes], seconds=[_rounded(value) for value in curve.seconds]
            ),
        )

    def cost(self) -> StepCost:
        """Return them as the core computes with them."""
        curve = self.prefill_curve.curve() if self.prefill_curve else None
        return StepCost(**{name: getattr(self, name) for name in COEFFICIENTS}, prefill_curve=curve)


class Power(Part):
    """What one worker draws: all its accelerators and their share of the machine, in watts.

    Between idle and full load it is taken as straight in the load; decode at full load draws less than prefill.
    """

    idle_w: NotNegative
    prefill_w: NotNegative
    """While it computes prompts all the time."""
    decode_w: NotNegative
    """While it decodes all the time."""
    source: str

    @model_validator(mode="after")
    def _idle_is_least(self) -> "Power":
        for name in ("prefill_w", "decode_w"):
            if getattr(self, name) < self.idle_w:
                raise ValueError(f"{name} is {getattr(self, name):g}, less than idle_w, {self.idle_w:g}")
        return self

    def watts(self, *, prefill_load: float, decode_load: float) -> float:
        """Return what a worker draws that computes prompts and decodes for such shares of its time, each 0 to 1."""
        prefill, decode = min(1.0, max(0.0, prefill_load)), min(1.0, max(0.0, decode_load))
        if prefill + decode > 1:
            prefill, decode = prefill / (prefill + decode), decode / (prefill + decode)
        return self.idle_w + prefill * (self.prefill_w - self.idle_w) + decode * (self.decode_w - self.idle_w)


class KVCache(Part):
    """How much KV cache a worker holds and what a token of it weighs."""

    capacity_tokens: Annotated[int, Field(ge=1)]
    bytes_per_token: Positive


class Transfer(Part):
    """The link over which a worker receives KV cache."""

    bytes_per_s: Positive
    latency_s: NotNegative


class Range(Part):
    """Where the coefficients were fitted; outside of it they are extrapolations."""

    prompt_tokens: tuple[int, int] | None = None
    context_tokens: tuple[int, int] | None = None
    sequences: tuple[int, int] | None = None


class FitError(Part):
    """How far predictions lie from measurements, as fractions: typically (the median), at the p95, at worst."""

    prefill_typical: NotNegative | None = None
    prefill_p95: NotNegative | None = None
    prefill_worst: NotNegative | None = None
    decode_typical: NotNegative | None = None
    decode_p95: NotNegative | None = None
    decode_worst: NotNegative | None = None
    mixed_typical: NotNegative | None = None
    mixed_p95: NotNegative | None = None
    mixed_worst: NotNegative | None = None


class Provenance(Part):
    """Where the figures come from."""

    source: str
    licence: str
    measured: bool
    """False for figures that nobody measured."""
    basis: Literal["measurements", "published-fit", "operator-tables", "roofline"] | None = None
    """What the coefficients were derived from."""
    fitted: Range = Range()
    error: FitError = FitError()
    notes: list[str] = []


class Profile(Part):
    """One model on one accelerator in one engine layout."""

    format: Literal["swingpool-profile/v1", "swingpool-profile/v2"]
    name: Annotated[str, Field(pattern=r"^[a-z0-9]([-.a-z0-9]{0,61}[a-z0-9])?$")]
    summary: str
    models: list[str]
    """Names of models it holds for; the part after the last `/` counts, without regard to case."""
    accelerator: Accelerator
    layout: Layout
    step: Step
    kv: KVCache
    transfer: Transfer
    startup_s: NotNegative
    itl_spread: Annotated[list[Positive], Field(max_length=100)] = []
    """Times between tokens over what the coefficients say: factors, each as likely as the others; empty if unknown."""
    prefill_spread: Annotated[list[Positive], Field(max_length=100)] = []
    """Times of computing a prompt, likewise."""
    power: Power | None = None
    provenance: Provenance

    @model_validator(mode="after")
    def _of_its_version(self) -> "Profile":
        spread = self.itl_spread or self.prefill_spread
        if self.format != FORMAT and (self.power is not None or self.step.prefill_curve is not None or spread):
            raise ValueError(
                f"power, itl_spread, prefill_spread and step.prefill_curve came with {FORMAT}; the file says "
                f"{self.format}"
            )
        return self

    def model(self, *, max_batched_tokens: int | None = None, max_sequences: int | None = None) -> LinearModel:
        """Return the performance model, with the engine's limits where they are set otherwise than when measured."""
        return LinearModel(
            name=self.name,
            step=self.step.cost(),
            kv_capacity_tokens=self.kv.capacity_tokens,
            kv_bytes_per_token=self.kv.bytes_per_token,
            max_batched_tokens=max_batched_tokens or self.layout.max_batched_tokens,
            max_sequences=max_sequences or self.layout.max_sequences,
            link_bytes_per_s=self.transfer.bytes_per_s,
            link_latency_s=self.transfer.latency_s,
            startup_s=self.startup_s,
            itl_spread=tuple(self.itl_spread),
            prefill_spread=tuple(self.prefill_spread),
        )

    def fits(self, *, model: str, product: str | None) -> bool:
        """Tell whether it holds for a model on an accelerator product; None is any product."""
        if _base_name(model) not in {_base_name(name) for name in self.models}:
            return False
        return product is None or product.lower() in {name.lower() for name in self.accelerator.products}


def parse(text: str | bytes, *, origin: str) -> Profile:
    """Return the profile in a JSON text.

    Args:
        text: the JSON.
        origin: what to call it in errors: a file's name, a ConfigMap's key.

    Raises:
        ProfileError: not JSON, of another format, or a field is missing, unknown or out of range.
    """
    try:
        data = json.loads(text)
    except (ValueError, UnicodeDecodeError) as error:
        raise ProfileError(f"profile {origin}: not JSON: {error}") from error
    if not isinstance(data, dict):
        raise ProfileError(f"profile {origin}: must be a JSON object")
    if data.get("format") not in FORMATS:
        known = " and ".join(FORMATS)
        raise ProfileError(f"profile {origin}: format is {data.get('format')!r}; this version reads {known}")
    try:
        return Profile.model_validate(data)
    except ValidationError as error:
        faults = "; ".join(f"{_path(fault['loc'])}: {fault['msg']}" for fault in error.errors())
        raise ProfileError(f"profile {origin}: {faults}") from error


def name_of(model: str, product: str) -> str:
    """Return a name for the profile of a model on an accelerator."""
    parts = f"{model.rsplit('/', 1)[-1]}-{product}".lower()
    return re.sub(r"[^-.a-z0-9]+", "-", parts)[:63].strip("-.")


def built_in_names() -> tuple[str, ...]:
    """Return the names of the built-in profiles, sorted."""
    return tuple(sorted(entry.name.removesuffix(".json") for entry in _files()))


def built_in(name: str) -> Profile:
    """Return a built-in profile.

    Raises:
        ProfileError: there is none of that name.
    """
    for entry in _files():
        if entry.name == f"{name}.json":
            return parse(entry.read_bytes(), origin=name)
    raise ProfileError(f"there is no built-in profile {name!r}; there are {', '.join(built_in_names())}")


def choose(*, model: str, product: str | None) -> Profile | None:
    """Return the built-in profile that fits a model and an accelerator product, or None if none does.

    Args:
        model: the model's name, as users say it.
        product: the accelerator's product label; None for any.
    """
    for name in built_in_names():
        profile = built_in(name)
        if profile.fits(model=model, product=product):
            return profile
    return None


def _files() -> Iterator[resources.abc.Traversable]:
    root = resources.files("swingpool_control.engine") / "profiles"
    return (entry for entry in root.iterdir() if entry.name.endswith(".json"))


def _rounded(value: float) -> float:
    return float(f"{value:.5g}")


def _base_name(model: str) -> str:
    return model.rsplit("/", 1)[-1].lower()


def _path(location: tuple[int | str, ...]) -> str:
    return ".".join(str(part) for part in location)
