"""`InferenceCluster` v1alpha1: what a user writes. The one source of the CRD, its defaults and its documentation.

The parts live beside this module by concern; import them from here.
"""

from typing import Annotated

from pydantic import Field

from swingpool_control.api.base import ApiModel
from swingpool_control.api.cluster_rules import CLUSTER_RULES
from swingpool_control.api.engine import (
    Engine,
    EngineLayout,
    EngineType,
    KVLoadFailurePolicy,
    ModelCache,
    SchedulingPolicy,
    Simulated,
)
from swingpool_control.api.objectives import LatencyObjective, Objectives
from swingpool_control.api.pools import Accelerator, Pool, PoolRole, ReplicaMode, Replicas
from swingpool_control.api.quantities import Argument, ObjectName
from swingpool_control.api.router import (
    BuiltInRouter,
    ExternalRouter,
    Order,
    Overload,
    RequestClass,
    RoleLabels,
    Router,
    RouterType,
    ServiceType,
)
from swingpool_control.api.rules import LIST_SET, Rule, immutable, list_map, matches, rules
from swingpool_control.api.scaling import AcceleratorBudget, Budgets, Scaling, ScalingMode, Stabilization
from swingpool_control.api.tracing import Tracing

__all__ = [
    "Accelerator",
    "AcceleratorBudget",
    "ApiModel",
    "Budgets",
    "BuiltInRouter",
    "ConfigMapKey",
    "Engine",
    "EngineLayout",
    "EngineType",
    "ExternalRouter",
    "InferenceClusterSpec",
    "KVLoadFailurePolicy",
    "LatencyObjective",
    "Model",
    "ModelCache",
    "Objectives",
    "Order",
    "Overload",
    "Pool",
    "PoolRole",
    "ProfileReference",
    "ReplicaMode",
    "Replicas",
    "RequestClass",
    "RoleLabels",
    "Router",
    "RouterType",
    "Scaling",
    "ScalingMode",
    "SchedulingPolicy",
    "ServiceType",
    "Simulated",
    "Stabilization",
    "Tracing",
]

_OTHER_WEIGHTS = "workers of old and new weights would exchange KV cache; make a second InferenceCluster"


class Model(ApiModel):
    """The model to serve."""

    model_config = rules(
        immutable("name", remedy=_OTHER_WEIGHTS),
        immutable("source", optional=True, remedy=_OTHER_WEIGHTS),
        immutable("revision", optional=True, remedy=_OTHER_WEIGHTS),
        Rule(
            cel="!has(self.servedNames) || !(self.name in self.servedNames)",
            message="name is served already: remove it from servedNames",
            field=".servedNames",
        ),
    )

    name: Annotated[
        Argument,
        Field(
            max_length=253, description="Name of the model, such as Qwen/Qwen3-32B, as clients ask for it. Immutable."
        ),
    ]
    source: Annotated[
        Argument | None,
        Field(
            max_length=512,
            description="Where the weights come from: a hub's id, or a path in the worker. Default: name. Immutable.",
        ),
    ] = None
    revision: Annotated[
        Argument | None,
        Field(max_length=128, description="Branch, tag or commit of the source. Default: its newest. Immutable."),
    ] = None
    max_length: Annotated[
        int | None,
        Field(
            ge=1,
            le=10_000_000,
            description="Longest context in tokens, prompt and output together. Default: the model's own.",
        ),
    ] = None
    served_names: Annotated[
        tuple[Annotated[Argument, Field(max_length=253)], ...],
        Field(
            max_length=16,
            description="Further names under which clients may ask for the model.",
            json_schema_extra=LIST_SET,
        ),
    ] = ()


class ConfigMapKey(ApiModel):
    """A key of a ConfigMap in the cluster's namespace."""

    name: Annotated[ObjectName, Field(description="Name of the ConfigMap.")]
    key: Annotated[
        str,
        Field(min_length=1, max_length=253, pattern=r"^[-._a-zA-Z0-9]+$", description="Key within it."),
        matches(r"^[-._a-zA-Z0-9]+$", message="must be a ConfigMap's key: letters, digits, dashes, dots, underscores"),
    ] = "profile.json"


class ProfileReference(ApiModel):
    """Where the performance profile comes from: exactly one."""

    model_config = rules(
        Rule(
            cel="has(self.builtIn) != has(self.configMap)",
            message="give exactly one of builtIn and configMap, or remove profile for the default one",
        )
    )

    built_in: Annotated[Argument | None, Field(max_length=63, description="Name of a built-in profile.")] = None
    config_map: Annotated[ConfigMapKey | None, Field(description="A ConfigMap that holds a profile.")] = None


class InferenceClusterSpec(ApiModel):
    """The model, its objectives and its pools."""

    model_config = rules(*CLUSTER_RULES)

    model: Annotated[Model, Field(description="The model to serve.")]
    objectives: Annotated[Objectives, Field(description="Service-level objectives; all of them must hold.")]
    pools: Annotated[
        tuple[Pool, ...],
        Field(
            min_length=1,
            max_length=16,
            description="Pools of workers. One at least must take prefill and one decode; a Swing pool takes both.",
            json_schema_extra=list_map(),
        ),
    ]
    engine: Annotated[Engine, Field(description="The engine that all pools run.")] = Engine()
    scaling: Annotated[Scaling, Field(description="Whether and how replicas and roles change.")] = Scaling()
    router: Annotated[Router, Field(description="Who routes requests to workers.")] = Router()
    tracing: Annotated[
        Tracing | None,
        Field(
            description="Where OpenTelemetry traces of requests go. With an external router the workers' alone. A "
            "change of it restarts workers and router one after another. Default: no traces."
        ),
    ] = None
    profile: Annotated[
        ProfileReference | None,
        Field(description="Performance profile. Default: a built-in one that fits the model and the accelerator."),
    ] = None
