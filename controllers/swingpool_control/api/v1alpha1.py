"""`InferenceCluster` v1alpha1: what a user writes. The one source of the CRD, its defaults and its documentation."""

from enum import StrEnum
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from swingpool_control import names
from swingpool_control.api.quantities import Duration, Money


class ApiModel(BaseModel):
    """Base of every part of the resource: camelCase outside, unknown fields refused."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="forbid", frozen=True)


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


class ScalingMode(StrEnum):
    """Whether plans are carried out or only written to the status."""

    AUTO = "Auto"
    RECOMMEND = "Recommend"


class RouterType(StrEnum):
    """Who routes requests to workers."""

    BUILT_IN = "BuiltIn"
    EXTERNAL = "External"


class EngineType(StrEnum):
    """What runs in a worker."""

    VLLM = "VLLM"
    SIMULATED = "Simulated"


class KVLoadFailurePolicy(StrEnum):
    """What a decode worker does when a transfer of KV cache fails."""

    RECOMPUTE = "Recompute"
    FAIL = "Fail"


class Model(ApiModel):
    """The model to serve."""

    name: Annotated[
        str, Field(min_length=1, max_length=253, description="Name of the model, as clients say it in `model`.")
    ]
    source: Annotated[
        str | None,
        Field(
            max_length=512,
            description="Where the weights come from: a hub id or a path in the worker. Default: `name`.",
        ),
    ] = None
    revision: Annotated[str | None, Field(max_length=128, description="Branch, tag or commit of the source.")] = None
    max_length: Annotated[
        int | None,
        Field(
            ge=1,
            le=10_000_000,
            description="Longest context in tokens, prompt and output together. Default: the model's own.",
        ),
    ] = None
    served_names: Annotated[
        list[Annotated[str, Field(min_length=1, max_length=253)]],
        Field(max_length=16, description="Further names under which clients may ask for the model."),
    ] = []


class LatencyObjective(ApiModel):
    """A latency to hold at one or more percentiles; all that are given must hold."""

    p50: Annotated[Duration | None, Field(description="Half of all values lie at or under this.")] = None
    p90: Annotated[Duration | None, Field(description="90% of all values lie at or under this.")] = None
    p95: Annotated[Duration | None, Field(description="95% of all values lie at or under this.")] = None
    p99: Annotated[Duration | None, Field(description="99% of all values lie at or under this.")] = None


class Objectives(ApiModel):
    """Service-level objectives."""

    ttft: Annotated[
        LatencyObjective, Field(description="Time to first token, from arrival at the router to the first token.")
    ]
    itl: Annotated[LatencyObjective, Field(description="Inter-token latency, between two tokens of one request.")]


class Accelerator(ApiModel):
    """The accelerators of one worker."""

    product: Annotated[
        str | None,
        Field(
            max_length=63,
            description="Product as the node label `nvidia.com/gpu.product` (or the vendor's own) names it. Default: any.",
        ),
    ] = None
    product_label: Annotated[
        str, Field(min_length=1, max_length=316, description="Node label that names the product.")
    ] = "nvidia.com/gpu.product"
    resource: Annotated[
        str, Field(min_length=1, max_length=253, description="Extended resource that a pod asks for.")
    ] = "nvidia.com/gpu"
    count: Annotated[int, Field(ge=1, le=64, description="Accelerators per worker.")] = 1


class EngineLayout(ApiModel):
    """How one engine is laid out over its accelerators, and what it is tuned to."""

    tensor_parallel_size: Annotated[
        int | None,
        Field(ge=1, le=64, description="Tensor parallel ranks. Default: accelerators divided by the other sizes."),
    ] = None
    pipeline_parallel_size: Annotated[int, Field(ge=1, le=64, description="Pipeline stages.")] = 1
    data_parallel_size: Annotated[int, Field(ge=1, le=64, description="Data parallel ranks within the worker.")] = 1
    expert_parallel: Annotated[bool, Field(description="Spread experts over the tensor and data parallel ranks.")] = (
        False
    )
    quantization: Annotated[
        str | None, Field(max_length=63, description="Quantization method. Default: the model's own.")
    ] = None
    kv_cache_dtype: Annotated[
        str,
        Field(min_length=1, max_length=32, description="Type of the KV cache; alike in all pools that exchange KV."),
    ] = "auto"
    block_size: Annotated[
        int, Field(ge=1, le=1024, description="Tokens per KV block; alike in all pools that exchange KV.")
    ] = 16
    max_batched_tokens: Annotated[
        int | None,
        Field(
            ge=1,
            le=1_048_576,
            description="Tokens per engine step (the chunked prefill budget). Default: the engine's.",
        ),
    ] = None
    max_sequences: Annotated[
        int | None, Field(ge=1, le=65_536, description="Sequences per engine step. Default: the engine's.")
    ] = None
    extra_arguments: Annotated[
        list[Annotated[str, Field(min_length=1, max_length=1024)]],
        Field(max_length=64, description="Further engine arguments, one per item; not those that Swingpool sets."),
    ] = []


class Replicas(ApiModel):
    """How many workers a pool has, and who decides it."""

    mode: Annotated[
        ReplicaMode,
        Field(
            description="Auto: Swingpool decides between min and max. Fixed: `count`. External: another controller scales the Deployment."
        ),
    ] = ReplicaMode.AUTO
    min: Annotated[int, Field(ge=0, le=10_000, description="Fewest workers in mode Auto.")] = 1
    max: Annotated[
        int | None, Field(ge=0, le=10_000, description="Most workers in mode Auto. Default: the larger of min and 1.")
    ] = None
    count: Annotated[int | None, Field(ge=0, le=10_000, description="Workers in mode Fixed; only there.")] = None


class Pool(ApiModel):
    """Workers of one accelerator type and one engine layout."""

    name: Annotated[
        str,
        Field(
            min_length=1,
            max_length=names.MAX_POOL_NAME,
            pattern=r"^[a-z]([-a-z0-9]*[a-z0-9])?$",
            description="Name of the pool.",
        ),
    ]
    role: Annotated[
        PoolRole, Field(description="Prefill, Decode, or Swing: workers that change between the two without a restart.")
    ]
    accelerator: Annotated[Accelerator, Field(description="The accelerators of one worker.")] = Accelerator()
    engine: Annotated[EngineLayout, Field(description="How one engine is laid out and tuned.")] = EngineLayout()
    replicas: Annotated[Replicas, Field(description="How many workers, and who decides it.")] = Replicas()
    cost_per_hour: Annotated[
        Money | None, Field(description="Price of one worker for an hour, in any one currency.")
    ] = None
    pod_template: Annotated[
        dict[str, Any] | None,
        Field(
            description="Overrides, merged over the pod template that Swingpool renders: `metadata` and `spec` as in a pod."
        ),
    ] = None


class Simulated(ApiModel):
    """Settings of simulated workers."""

    speedup: Annotated[
        str,
        Field(pattern=r"^[0-9]+(\.[0-9]+)?$", max_length=16, description="How much faster than the profile they run."),
    ] = "1"
    request_accelerators: Annotated[
        bool,
        Field(
            description="Ask for the pools' accelerators and their nodes, as real workers would. Default: run on any node."
        ),
    ] = False


class Engine(ApiModel):
    """The engine that all pools run: one version, so that its workers can exchange KV cache."""

    type: Annotated[
        EngineType, Field(description="VLLM, or Simulated: no accelerator, latencies of a profile, for dry runs.")
    ] = EngineType.VLLM
    image: Annotated[
        str | None,
        Field(
            min_length=1,
            max_length=512,
            description="Image of the workers. Default: the manager's setting for the type.",
        ),
    ] = None
    image_pull_secrets: Annotated[
        list[Annotated[str, Field(min_length=1, max_length=253)]],
        Field(max_length=8, description="Secrets to pull the image with."),
    ] = []
    kv_load_failure_policy: Annotated[
        KVLoadFailurePolicy, Field(description="Recompute the prompt when a transfer fails, or fail the request.")
    ] = KVLoadFailurePolicy.RECOMPUTE
    model_cache: Annotated[
        "ModelCache | None",
        Field(description="Where downloaded weights live. Default: a volume that dies with the pod."),
    ] = None
    max_request_duration: Annotated[
        Duration,
        Field(description="Longest time a request may take; a worker that ends waits this long for its last token."),
    ] = "10m"
    simulated: Annotated[Simulated, Field(description="Settings of simulated workers.")] = Simulated()


class ModelCache(ApiModel):
    """Exactly one place for downloaded weights."""

    persistent_volume_claim: Annotated[
        str | None, Field(min_length=1, max_length=253, description="Claim shared by all workers.")
    ] = None
    host_path: Annotated[str | None, Field(min_length=1, max_length=512, description="Directory on every node.")] = None
    size_limit: Annotated[str | None, Field(max_length=32, description="Limit of a volume that dies with the pod.")] = (
        None
    )


class AcceleratorBudget(ApiModel):
    """Most accelerators of one product or resource."""

    product: Annotated[str, Field(min_length=1, max_length=63, description="Product, as pools name it; `*` for all.")]
    max: Annotated[int, Field(ge=0, le=1_000_000, description="Most accelerators at any moment.")]


class Budgets(ApiModel):
    """Limits over all pools together, at every moment of every transition."""

    accelerators: Annotated[
        list[AcceleratorBudget], Field(max_length=32, description="Most accelerators by product.")
    ] = []
    cost_per_hour: Annotated[
        Money | None, Field(description="Most money per hour, in the currency of the pools' prices.")
    ] = None


class Stabilization(ApiModel):
    """How reluctantly plans change."""

    scale_down_window: Annotated[
        Duration, Field(description="Fewer workers only after the need was lower for this long.")
    ] = "5m"
    dead_band_percent: Annotated[
        int, Field(ge=0, le=90, description="Changes of need within this band change nothing.")
    ] = 10
    min_role_duration: Annotated[Duration, Field(description="A swing worker keeps a role for at least this long.")] = (
        "10s"
    )


class Scaling(ApiModel):
    """Whether and how replicas and roles change."""

    mode: Annotated[
        ScalingMode,
        Field(description="Auto: plans are carried out. Recommend: written to the status, nothing is changed."),
    ] = ScalingMode.AUTO
    budgets: Annotated[Budgets, Field(description="Limits over all pools together.")] = Budgets()
    stabilization: Annotated[Stabilization, Field(description="How reluctantly plans change.")] = Stabilization()


class ServiceType(StrEnum):
    """How the router is reached."""

    CLUSTER_IP = "ClusterIP"
    NODE_PORT = "NodePort"
    LOAD_BALANCER = "LoadBalancer"


class BuiltInRouter(ApiModel):
    """Envoy with Swingpool's endpoint picker."""

    replicas: Annotated[int, Field(ge=1, le=64, description="Router pods.")] = 1
    service_type: Annotated[ServiceType, Field(description="Type of the router's Service.")] = ServiceType.CLUSTER_IP


class RoleLabels(ApiModel):
    """The label by which an external router tells roles apart."""

    key: Annotated[str, Field(min_length=1, max_length=316, description="Key of the label.")] = "llm-d.ai/role"
    prefill: Annotated[str, Field(max_length=63, description="Its value on prefill workers.")] = "prefill"
    decode: Annotated[str, Field(max_length=63, description="Its value on decode workers.")] = "decode"
    draining: Annotated[
        str, Field(max_length=63, description="Its value on workers that shall get no new request.")
    ] = "draining"


class ExternalRouter(ApiModel):
    """A router of another project that follows pod labels."""

    role_labels: Annotated[RoleLabels, Field(description="The label it selects workers by.")] = RoleLabels()
    drain_settle: Annotated[
        Duration, Field(description="How long a draining worker must be idle before its role changes.")
    ] = "6s"


class Router(ApiModel):
    """Who routes requests to workers."""

    type: Annotated[
        RouterType,
        Field(
            description="BuiltIn: Envoy with Swingpool's endpoint picker. External: another router that watches labels."
        ),
    ] = RouterType.BUILT_IN
    built_in: Annotated[BuiltInRouter, Field(description="Settings of the built-in router.")] = BuiltInRouter()
    external: Annotated[ExternalRouter, Field(description="Settings for an external router.")] = ExternalRouter()


class ConfigMapKey(ApiModel):
    """A key of a ConfigMap in the cluster's namespace."""

    name: Annotated[str, Field(min_length=1, max_length=253, description="Name of the ConfigMap.")]
    key: Annotated[str, Field(min_length=1, max_length=253, description="Key within it.")] = "profile.json"


class ProfileReference(ApiModel):
    """Where the performance profile comes from: exactly one."""

    built_in: Annotated[str | None, Field(min_length=1, max_length=63, description="Name of a built-in profile.")] = (
        None
    )
    config_map: Annotated[ConfigMapKey | None, Field(description="A ConfigMap with a profile file.")] = None


class InferenceClusterSpec(ApiModel):
    """The model, its objectives and its pools."""

    model: Annotated[Model, Field(description="The model to serve.")]
    objectives: Annotated[Objectives, Field(description="Service-level objectives; all must hold.")]
    pools: Annotated[list[Pool], Field(min_length=1, max_length=16, description="Pools of workers.")]
    engine: Annotated[Engine, Field(description="The engine that all pools run.")] = Engine()
    scaling: Annotated[Scaling, Field(description="Whether and how replicas and roles change.")] = Scaling()
    router: Annotated[Router, Field(description="Who routes requests to workers.")] = Router()
    profile: Annotated[
        ProfileReference | None,
        Field(description="Performance profile. Default: a built-in one that fits the model and accelerator."),
    ] = None
