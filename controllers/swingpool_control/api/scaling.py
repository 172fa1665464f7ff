"""Whether and how replicas and roles change."""

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from swingpool_control.api.base import ApiModel
from swingpool_control.api.quantities import LABEL_VALUE_PATTERN, Duration, Money
from swingpool_control.api.rules import list_map, matches


class ScalingMode(StrEnum):
    """Whether plans are carried out or only written to the status."""

    AUTO = "Auto"
    RECOMMEND = "Recommend"


class AcceleratorBudget(ApiModel):
    """Most accelerators of one product, or of all together."""

    product: Annotated[
        str,
        Field(min_length=1, max_length=63, description="Product as pools name it, or `*` for all pools together."),
        matches(rf"{LABEL_VALUE_PATTERN}|^[*]$", message="must be a product as pools name it, or * for all pools"),
    ]
    max: Annotated[int, Field(ge=0, le=1_000_000, description="Most accelerators at any moment.")]


class Budgets(ApiModel):
    """Limits over all pools together, at every moment of every transition."""

    accelerators: Annotated[
        tuple[AcceleratorBudget, ...],
        Field(max_length=32, description="Most accelerators by product.", json_schema_extra=list_map("product")),
    ] = ()
    cost_per_hour: Annotated[
        Money | None,
        Field(description="Most money per hour, such as '120', in the currency of the pools' costPerHour."),
    ] = None


class Stabilization(ApiModel):
    """How reluctantly plans change."""

    scale_down_window: Annotated[
        Duration, Field(description="A pool shrinks only after the need was lower for this long.")
    ] = "5m"
    dead_band_percent: Annotated[
        int, Field(ge=0, le=90, description="A change of the need by less than this percentage changes nothing.")
    ] = 10
    min_role_duration: Annotated[Duration, Field(description="A swing worker keeps a role for at least this long.")] = (
        "10s"
    )


class Scaling(ApiModel):
    """Whether and how replicas and roles change."""

    mode: Annotated[
        ScalingMode,
        Field(description="Auto: plans are carried out. Recommend: they are written to the status, nothing changes."),
    ] = ScalingMode.AUTO
    budgets: Annotated[Budgets, Field(description="Limits over all pools together.")] = Budgets()
    stabilization: Annotated[Stabilization, Field(description="How reluctantly plans change.")] = Stabilization()
    lost_workers: Annotated[
        int,
        Field(
            ge=0,
            le=1,
            description="Workers, of whichever pool, that may be lost with all objectives still held, even before a "
            "swing worker changes its role: 1 keeps a spare worker in each role.",
        ),
    ] = 0
