"""Published facts of accelerators and models: what the roofline is computed from."""

import json
from importlib import resources
from typing import Annotated, Any

from pydantic import Field

from swingpool_control.engine.profile import NotNegative, Part, Positive, Power, ProfileError

Count = Annotated[int, Field(ge=1)]
SPARSE = frozenset({"num_experts", "num_local_experts", "n_routed_experts", "moe_intermediate_size"})
"""Fields that only mixtures of experts have."""


class AcceleratorFacts(Part):
    """One accelerator's peak rates; links are one way."""

    name: str
    products: list[str]
    bf16_flops: Positive
    fp8_flops: Positive | None
    """None if it computes 8-bit weights in 16 bits."""
    memory_bytes: Positive
    memory_bytes_per_s: Positive
    scale_up_bytes_per_s: Positive
    """To its neighbours in the node."""
    scale_out_bytes_per_s: Positive
    """To other nodes."""
    power_w: tuple[NotNegative, NotNegative, NotNegative] | None = None
    """What it draws idle, computing prompts and decoding; None if nobody says."""

    def power(self, count: int) -> Power | None:
        """Return what so many of them draw, without the rest of their machine; None if nobody says."""
        if self.power_w is None:
            return None
        idle, prefill, decode = (count * watts for watts in self.power_w)
        return Power(
            idle_w=idle, prefill_w=prefill, decode_w=decode, source=str(_file("accelerators")["power_sources"])
        )


class ModelShape(Part):
    """A dense transformer's sizes."""

    name: str
    models: list[str]
    parameters: Positive
    layers: Count
    hidden_size: Count
    heads: Count
    kv_heads: Count
    head_size: Count


def accelerators() -> tuple[AcceleratorFacts, ...]:
    """Return the accelerators whose facts are known."""
    return tuple(AcceleratorFacts.model_validate(entry) for entry in _entries("accelerators"))


def shapes() -> tuple[ModelShape, ...]:
    """Return the models whose shapes are known."""
    return tuple(ModelShape.model_validate(entry) for entry in _entries("models"))


def accelerator(name: str) -> AcceleratorFacts:
    """Return an accelerator's facts by name or product label, without regard to case.

    Raises:
        ProfileError: nothing is known of it.
    """
    for found in accelerators():
        if name.lower() in {found.name, *(product.lower() for product in found.products)}:
            return found
    known = ", ".join(found.name for found in accelerators())
    raise ProfileError(f"nothing is known of accelerator {name!r}; known are {known}, and their product labels")


def shape(name: str) -> ModelShape:
    """Return a model's shape by its short name or by what stands after the last `/`, without regard to case.

    Raises:
        ProfileError: nothing is known of it.
    """
    wanted = name.rsplit("/", 1)[-1].lower()
    for found in shapes():
        if wanted in {found.name, *(model.lower() for model in found.models)}:
            return found
    known = ", ".join(found.name for found in shapes())
    raise ProfileError(f"the shape of model {name!r} is not known; known are {known}")


def shape_of_config(data: bytes, *, origin: str, name: str, parameters: float) -> ModelShape:
    """Return the shape in a model's `config.json`, as Hugging Face's libraries write it.

    Args:
        data: the file.
        origin: what to call it in errors.
        name: the model's name.
        parameters: how many parameters it has; the file does not tell.

    Raises:
        ProfileError: not such a file, or not of a dense transformer.
    """
    try:
        config = json.loads(data)
    except (ValueError, UnicodeDecodeError) as error:
        raise ProfileError(f"{origin}: not JSON: {error}") from error
    if not isinstance(config, dict):
        raise ProfileError(f"{origin}: must be a JSON object")
    if sparse := sorted(SPARSE & set(config)):
        raise ProfileError(f"{origin}, {sparse[0]}: the roofline is of dense models; this one has experts")
    heads = _whole(config, "num_attention_heads", origin)
    hidden = _whole(config, "hidden_size", origin)
    return ModelShape(
        name=name.rsplit("/", 1)[-1],
        models=[name],
        parameters=parameters,
        layers=_whole(config, "num_hidden_layers", origin),
        hidden_size=hidden,
        heads=heads,
        kv_heads=_whole(config, "num_key_value_heads", origin, default=heads),
        head_size=_whole(config, "head_dim", origin, default=max(1, hidden // heads)),
    )


def _whole(config: dict[str, Any], field: str, origin: str, *, default: int | None = None) -> int:
    value = config.get(field)
    if value is None and default is not None:
        return default
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ProfileError(f"{origin}, {field}: must be a whole number, 1 or more, not {value!r}")
    return value


def source(kind: str) -> str:
    """Return where the facts of `accelerators` or of `models` come from."""
    return str(_file(kind)["sources"])


def _entries(kind: str) -> list[Any]:
    entries: list[Any] = _file(kind)[kind]
    return entries


def _file(kind: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((resources.files(__package__) / f"{kind}.json").read_bytes())
    return content
