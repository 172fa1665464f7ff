"""Who routes requests to workers."""

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from swingpool_control.api.base import ApiModel
from swingpool_control.api.quantities import Duration, LabelKey, LabelValue
from swingpool_control.api.rules import NO_WRITTEN_DEFAULT, Rule, immutable, rules


class RouterType(StrEnum):
    """Who routes requests to workers."""

    BUILT_IN = "BuiltIn"
    EXTERNAL = "External"


class ServiceType(StrEnum):
    """How the router is reached."""

    CLUSTER_IP = "ClusterIP"
    NODE_PORT = "NodePort"
    LOAD_BALANCER = "LoadBalancer"


class BuiltInRouter(ApiModel):
    """Envoy with Swingpool's endpoint picker."""

    replicas: Annotated[int, Field(ge=1, le=64, description="Router pods.")] = 1
    service_type: Annotated[ServiceType, Field(description="Type of the router's Service, as Kubernetes calls it.")] = (
        ServiceType.CLUSTER_IP
    )


class RoleLabels(ApiModel):
    """The label by which an external router tells roles apart."""

    model_config = rules(
        Rule(
            cel="self.prefill != self.decode && self.prefill != self.draining && self.decode != self.draining",
            message="prefill, decode and draining need three different values, or the router cannot tell roles apart",
        )
    )

    key: Annotated[LabelKey, Field(description="Key of the label on worker pods.")] = "llm-d.ai/role"
    prefill: Annotated[LabelValue, Field(description="Its value on prefill workers.")] = "prefill"
    decode: Annotated[LabelValue, Field(description="Its value on decode workers.")] = "decode"
    draining: Annotated[LabelValue, Field(description="Its value on workers that shall get no new request.")] = (
        "draining"
    )


class ExternalRouter(ApiModel):
    """A router of another project that follows pod labels."""

    role_labels: Annotated[RoleLabels, Field(description="The label by which it tells roles apart.")] = RoleLabels()
    drain_settle: Annotated[
        Duration, Field(description="How long a draining worker must be idle before its role changes.")
    ] = "6s"


class Router(ApiModel):
    """Who routes requests to workers."""

    model_config = rules(
        immutable("type", remedy="clients would lose their address; make a second InferenceCluster and move them"),
        Rule(
            cel="self.type == 'External' || !has(self.external)",
            message="external is for type External only: remove it, or set type to External",
            field=".external",
            reason="FieldValueForbidden",
        ),
        Rule(
            cel="self.type != 'External' || has(self.external)",
            message="type External needs external; write `external: {}` for llm-d's labels",
            field=".external",
            reason="FieldValueRequired",
        ),
    )

    type: Annotated[
        RouterType,
        Field(
            description="BuiltIn: Envoy with Swingpool's endpoint picker. External: another router that follows the "
            "role labels of pods, such as llm-d's or vllm-router. Immutable."
        ),
    ] = RouterType.BUILT_IN
    built_in: Annotated[
        BuiltInRouter, Field(description="Settings of the built-in router; without effect with type External.")
    ] = BuiltInRouter()
    external: Annotated[
        ExternalRouter,
        Field(
            description="What an external router goes by; only with type External, which needs it.",
            json_schema_extra={NO_WRITTEN_DEFAULT: True},
        ),
    ] = ExternalRouter()
