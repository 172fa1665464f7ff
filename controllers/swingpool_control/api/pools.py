"""Pools: workers of one accelerator type and one engine layout."""

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from swingpool_control import names
from swingpool_control.api.base import ApiModel
from swingpool_control.api.engine import EngineLayout
from swingpool_control.api.pod_template import PodTemplate
from swingpool_control.api.quantities import LabelKey, LabelValue, Money, ResourceName
from swingpool_control.api.rules import Rule, immutable, matches, rules

POOL_NAME_PATTERN = r"^[a-z]([-a-z0-9]*[a-z0-9])?$"
CPU = "cpu"
"""The resource of workers that compute on processor cores."""
_OTHER_POOL = "add a pool with another name, then remove this one"


class PoolRole(StrEnum):
    """What the workers of a pool may do."""

    PREFILL = "Prefill"
    DECODE = "Decode"
    SWING = "Swing"


class ReplicaMode(StrEnum):
    """Who decides how many workers a pool has."""

    AUTO = "Auto"
    FIXED = "Fixed"
    EXTERNAL = "External"


class Accelerator(ApiModel):
    """The accelerators of one worker."""

    model_config = rules(
        immutable("product", optional=True, remedy=_OTHER_POOL),
        immutable("productLabel", remedy=_OTHER_POOL),
        immutable("resource", remedy=_OTHER_POOL),
        immutable("count", remedy=_OTHER_POOL),
    )

    product: Annotated[
        LabelValue | None,
        Field(
            description="Product as the nodes' label productLabel names it, such as NVIDIA-H100-80GB-HBM3; workers run "
            "on such nodes only. Default: any. Immutable."
        ),
    ] = None
    product_label: Annotated[
        LabelKey, Field(description="Label of nodes that names the product of their accelerators. Immutable.")
    ] = "nvidia.com/gpu.product"
    resource: Annotated[
        ResourceName,
        Field(
            description="Extended resource that a worker asks for, as the device plugin calls it; cpu: workers compute "
            "on processor cores, with a build of vLLM for them and kvTransfer.buffer Host. Immutable."
        ),
    ] = "nvidia.com/gpu"
    count: Annotated[
        int, Field(ge=1, le=64, description="Accelerators, or processor cores, per worker. Immutable.")
    ] = 1


class Replicas(ApiModel):
    """How many workers a pool has, and who decides it."""

    model_config = rules(
        Rule(
            cel="self.mode != 'Auto' || self.min <= self.max",
            message="max is less than min: raise max or lower min",
            field=".max",
        ),
        Rule(
            cel="self.mode != 'Fixed' || has(self.count)",
            message="mode Fixed needs count, the number of workers",
            field=".count",
            reason="FieldValueRequired",
        ),
        Rule(
            cel="self.mode == 'Fixed' || !has(self.count)",
            message_cel="'count is for mode Fixed, mode is ' + self.mode + ': remove count or set mode to Fixed'",
            field=".count",
            reason="FieldValueForbidden",
        ),
        Rule(
            cel="self.mode == 'Auto' || self.reserve == 0",
            message="reserve is for mode Auto: remove it, or set mode to Auto",
            field=".reserve",
            reason="FieldValueForbidden",
        ),
        Rule(
            cel="self.mode == 'Auto' || (self.min == 1 && self.max == 1)",
            message_cel="'min and max are for mode Auto, mode is ' + self.mode + ': remove them or set mode to Auto'",
            field=".max",
            reason="FieldValueForbidden",
        ),
    )

    mode: Annotated[
        ReplicaMode,
        Field(
            description="Auto: Swingpool decides between min and max. Fixed: always count. External: something else, "
            "such as a HorizontalPodAutoscaler, scales the pool's Deployment."
        ),
    ] = ReplicaMode.AUTO
    min: Annotated[int, Field(ge=0, le=10_000, description="Fewest workers; in mode Auto.")] = 1
    max: Annotated[
        int, Field(ge=0, le=10_000, description="Most workers; in mode Auto. Raise it to let the pool grow.")
    ] = 1
    count: Annotated[
        int | None, Field(ge=0, le=10_000, description="Workers; in mode Fixed, which needs it, and only there.")
    ] = None
    reserve: Annotated[
        int,
        Field(
            ge=0,
            le=10_000,
            description="Most workers that sleep instead of ending when the pool shrinks, beside `max`; in mode Auto. "
            "They keep their accelerators, give back the memory there, and wake faster than new ones start.",
        ),
    ] = 0

    @property
    def fewest(self) -> int:
        """Fewest workers that Swingpool may leave; 0 where something else scales the pool."""
        if self.mode is ReplicaMode.EXTERNAL:
            return 0
        return self.min if self.count is None else self.count

    @property
    def most(self) -> int | None:
        """Most workers that Swingpool may ask for; None where something else scales the pool."""
        if self.mode is ReplicaMode.EXTERNAL:
            return None
        return self.max if self.count is None else self.count


class Pool(ApiModel):
    """Workers of one accelerator type and one engine layout."""

    model_config = rules(
        immutable("role", remedy=_OTHER_POOL),
        Rule(
            cel=f"self.accelerator.resource == '{CPU}' || !has(self.engine.tensorParallelSize) "
            "|| self.engine.tensorParallelSize "
            "* self.engine.pipelineParallelSize * self.engine.dataParallelSize == self.accelerator.count",
            message="tensorParallelSize * pipelineParallelSize * dataParallelSize must be accelerator.count: change "
            "one of them, or leave tensorParallelSize out",
            field=".engine.tensorParallelSize",
        ),
        Rule(
            cel=f"self.accelerator.resource == '{CPU}' || has(self.engine.tensorParallelSize) "
            "|| self.accelerator.count "
            "% (self.engine.pipelineParallelSize * self.engine.dataParallelSize) == 0",
            message="pipelineParallelSize * dataParallelSize must divide accelerator.count: change one of them",
            field=".engine",
        ),
    )

    name: Annotated[
        str,
        Field(
            min_length=1,
            max_length=names.MAX_POOL_NAME,
            pattern=POOL_NAME_PATTERN,
            description=f"Name of the pool, at most {names.MAX_POOL_NAME} characters; its Deployment is called "
            f"<cluster>-<pool>.",
        ),
        matches(POOL_NAME_PATTERN, message="must be lower-case letters, digits and dashes, and start with a letter"),
        Rule(
            cel=f"!(self in {list(names.RESERVED_POOL_NAMES)})",
            message=f"{', '.join(names.RESERVED_POOL_NAMES)} are names of other parts of the cluster: choose another",
        ),
    ]
    role: Annotated[
        PoolRole,
        Field(
            description="Prefill: computes prompts. Decode: generates tokens. Swing: changes between the two without a "
            "restart, as the load asks. Immutable."
        ),
    ]
    accelerator: Annotated[Accelerator, Field(description="The accelerators of one worker. Immutable.")] = Accelerator()
    engine: Annotated[EngineLayout, Field(description="How one engine is laid out over them, and tuned.")] = (
        EngineLayout()
    )
    replicas: Annotated[Replicas, Field(description="How many workers, and who decides it.")] = Replicas()
    cost_per_hour: Annotated[
        Money | None,
        Field(description="Price of one worker for an hour, such as '5.90', in any currency, the same in all pools."),
    ] = None
    pod_template: Annotated[
        PodTemplate | None,
        Field(
            description="Overrides, merged over the pod template that Swingpool renders: `metadata` (labels, "
            "annotations) and `spec` as in a pod."
        ),
    ] = None

    @property
    def tensor_parallel_size(self) -> int:
        """Tensor parallel ranks, as given or as they follow from the accelerators; cores are no ranks."""
        if self.accelerator.resource == CPU:
            return self.engine.tensor_parallel_size or 1
        others = self.engine.pipeline_parallel_size * self.engine.data_parallel_size
        return self.engine.tensor_parallel_size or max(1, self.accelerator.count // others)
