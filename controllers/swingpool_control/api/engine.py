"""The engine: what all pools share of it, and what each pool lays out for itself."""

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from swingpool_control.api.arguments import ExtraArgument
from swingpool_control.api.base import ApiModel
from swingpool_control.api.kv_transfer import KVTransfer
from swingpool_control.api.quantities import Argument, Factor, ObjectName, PositiveDuration
from swingpool_control.api.rules import LIST_ATOMIC, LIST_SET, NO_WRITTEN_DEFAULT, Rule, immutable, matches, rules
from swingpool_control.vllm.versions import NEWEST

VERSION_PATTERN = r"^0\.(1[1-9]|[2-9][0-9])(\.[0-9]{1,3})?$"


def _needs(used: str, minor: int, *, what: str, field: str) -> Rule:
    """Return the rule that what is used needs a version of vLLM."""
    return Rule(
        cel=f"!({used}) || !self.version.matches(r'{VERSION_PATTERN}') || int(self.version.split('.')[1]) >= {minor}",
        message=f"{what} needs vLLM 0.{minor} or newer: raise engine.version, or choose another",
        field=f".kvTransfer.{field}",
    )


class EngineType(StrEnum):
    """What runs in a worker."""

    VLLM = "VLLM"
    SIMULATED = "Simulated"


class KVLoadFailurePolicy(StrEnum):
    """What a decode worker does when a transfer of KV cache fails."""

    RECOMPUTE = "Recompute"
    FAIL = "Fail"


class SchedulingPolicy(StrEnum):
    """In which order an engine takes waiting requests."""

    FCFS = "FCFS"
    PRIORITY = "Priority"


class EngineLayout(ApiModel):
    """How one engine is laid out over its accelerators, and what it is tuned to."""

    image: Annotated[
        Argument | None,
        Field(
            max_length=512,
            description="Image of this pool's workers, where their accelerators need another build of the same "
            "version. Default: spec.engine.image.",
        ),
    ] = None
    tensor_parallel_size: Annotated[
        int | None,
        Field(
            ge=1,
            le=64,
            description="Tensor parallel ranks. Default: accelerator.count divided by the pipeline and data parallel "
            "sizes. The three sizes multiply to accelerator.count, unless that counts processor cores.",
        ),
    ] = None
    pipeline_parallel_size: Annotated[int, Field(ge=1, le=64, description="Pipeline parallel stages.")] = 1
    data_parallel_size: Annotated[int, Field(ge=1, le=64, description="Data parallel ranks within one worker.")] = 1
    expert_parallel: Annotated[
        bool,
        Field(
            description="Spread a mixture of experts over the tensor and data parallel ranks; the expert parallel size "
            "is the product of the two."
        ),
    ] = False
    quantization: Annotated[
        Argument | None,
        Field(max_length=63, description="Quantization method, such as fp8 or awq. Default: the model's own."),
    ] = None
    kv_cache_dtype: Annotated[
        Argument,
        Field(
            max_length=32,
            description="Data type of the KV cache, such as auto or fp8. Alike in all pools, which exchange KV cache.",
        ),
    ] = "auto"
    block_size: Annotated[
        int,
        Field(ge=1, le=1024, description="Tokens per block of KV cache. Alike in all pools, which exchange KV cache."),
    ] = 16
    max_batched_tokens: Annotated[
        int | None,
        Field(
            ge=1,
            le=1_048_576,
            description="Most tokens per engine step, which is the chunked prefill budget. Default: the engine's own.",
        ),
    ] = None
    max_sequences: Annotated[
        int | None, Field(ge=1, le=65_536, description="Most sequences per engine step. Default: the engine's own.")
    ] = None
    extra_arguments: Annotated[
        tuple[ExtraArgument, ...],
        Field(
            max_length=32,
            description="Further engine arguments, each `--name=value`, or name and value as two items. Those that "
            "Swingpool sets itself are refused.",
            json_schema_extra=LIST_ATOMIC,
        ),
    ] = ()


class Simulated(ApiModel):
    """Settings of simulated workers."""

    speedup: Annotated[
        Factor, Field(description="How much faster than the profile they run: '1' is real time, '10' ten times it.")
    ] = "1"
    request_accelerators: Annotated[
        bool,
        Field(
            description="Whether simulated workers ask for the pool's accelerators as real ones do, to try scheduling."
        ),
    ] = False


class ModelCache(ApiModel):
    """Exactly one place for downloaded weights."""

    model_config = rules(
        Rule(
            cel="[has(self.persistentVolumeClaim), has(self.hostPath), has(self.sizeLimit)].filter(x, x).size() == 1",
            message="give exactly one of persistentVolumeClaim, hostPath and sizeLimit",
        )
    )

    persistent_volume_claim: Annotated[
        ObjectName | None,
        Field(description="Claim that all workers share; it must allow the access modes that their nodes need."),
    ] = None
    host_path: Annotated[
        Annotated[
            str,
            Rule(
                cel="self.startsWith('/') && !self.contains('..')",
                message="must be an absolute path without .., such as /var/cache/models",
            ),
        ]
        | None,
        Field(min_length=1, max_length=512, description="Directory on every node."),
    ] = None
    size_limit: Annotated[
        Annotated[
            str,
            Rule(
                cel="isQuantity(self) && quantity(self).isGreaterThan(quantity('0'))",
                message="must be a size such as 200Gi",
            ),
        ]
        | None,
        Field(min_length=1, max_length=32, description="Limit of a volume that dies with the pod, such as 200Gi."),
    ] = None


class Engine(ApiModel):
    """The engine that all pools run: one version, so that its workers can exchange KV cache."""

    model_config = rules(
        immutable("type", remedy="workers of two engines exchange no KV cache; make a second InferenceCluster"),
        Rule(
            cel="self.type == 'Simulated' || !has(self.simulated)",
            message="simulated is for type Simulated only: remove it, or set type to Simulated",
            field=".simulated",
            reason="FieldValueForbidden",
        ),
        _needs("self.kvTransfer.connector == 'MooncakeStore'", 21, what="connector MooncakeStore", field="connector"),
        _needs(
            "has(self.kvTransfer.hostCache) && self.kvTransfer.hostCache.type == 'Offloading'",
            14,
            what="a host cache of type Offloading",
            field="hostCache",
        ),
    )

    type: Annotated[
        EngineType,
        Field(
            description="VLLM: the engine itself. Simulated: workers that speak as vLLM does, with the latencies of a "
            "profile and without a model, for tests and dry runs. Immutable."
        ),
    ] = EngineType.VLLM
    image: Annotated[
        Argument | None,
        Field(
            max_length=512,
            description="Image of the workers of all pools. Default: the one that the manager is installed with, of "
            "this version, and of the build for the pool's accelerators.",
        ),
    ] = None
    image_pull_secrets: Annotated[
        tuple[ObjectName, ...],
        Field(
            max_length=8,
            description="Names of Secrets to pull the image with.",
            json_schema_extra=LIST_SET,
        ),
    ] = ()
    version: Annotated[
        str,
        Field(
            pattern=VERSION_PATTERN,
            max_length=16,
            description="Version of vLLM that the image holds: arguments follow it. 0.11 or newer.",
        ),
        matches(VERSION_PATTERN, message="must be a version of vLLM from 0.11 on, such as 0.32 or 0.20.1"),
    ] = NEWEST
    kv_transfer: Annotated[KVTransfer, Field(description="How workers exchange KV cache, and what else keeps it.")] = (
        KVTransfer()
    )
    kv_load_failure_policy: Annotated[
        KVLoadFailurePolicy,
        Field(
            description="What a decode worker does when a transfer of KV cache fails. Recompute: it computes the "
            "prompt itself. Fail: the request fails. vLLM before 0.13 always computes it."
        ),
    ] = KVLoadFailurePolicy.RECOMPUTE
    scheduling: Annotated[
        SchedulingPolicy,
        Field(description="FCFS: first come, first served. Priority: by the field `priority` of requests."),
    ] = SchedulingPolicy.FCFS
    prefix_caching: Annotated[bool, Field(description="Keep computed prefixes for later prompts that begin alike.")] = (
        True
    )
    model_cache: Annotated[
        ModelCache | None,
        Field(description="Where downloaded weights live. Default: a volume that dies with the pod."),
    ] = None
    max_request_duration: Annotated[
        PositiveDuration,
        Field(
            description="Longest time that a request may take. A worker that ends waits up to this long for the last "
            "token of what it holds."
        ),
    ] = "10m"
    simulated: Annotated[
        Simulated,
        Field(
            description="Settings of simulated workers; only with type Simulated.",
            json_schema_extra={NO_WRITTEN_DEFAULT: True},
        ),
    ] = Simulated()
