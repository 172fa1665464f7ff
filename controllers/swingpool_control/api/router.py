"""Who routes requests to workers."""

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from swingpool_control.api.access import ApiKeys, Authorizer, InferencePool, KVEvents, RateLimit, Tls, WorkerTls
from swingpool_control.api.base import ApiModel
from swingpool_control.api.quantities import Duration, LabelKey, LabelValue, PositiveDuration
from swingpool_control.api.rules import NO_WRITTEN_DEFAULT, Rule, immutable, list_map, matches, rules


class RouterType(StrEnum):
    """Who routes requests to workers."""

    BUILT_IN = "BuiltIn"
    EXTERNAL = "External"


class ServiceType(StrEnum):
    """How the router is reached."""

    CLUSTER_IP = "ClusterIP"
    NODE_PORT = "NodePort"
    LOAD_BALANCER = "LoadBalancer"


class SessionAffinity(StrEnum):
    """Whether a client's connections go to one router pod, as Kubernetes calls it."""

    NONE = "None"
    CLIENT_IP = "ClientIP"


class RequestLog(StrEnum):
    """Where the router writes a line for each request."""

    NONE = "None"
    STDOUT = "Stdout"


ClassName = Annotated[
    str,
    Field(min_length=1, max_length=63, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"),
    matches(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", message="must be a name of lowercase letters, digits and dashes"),
]


class Order(ApiModel):
    """In what order prompts that wait go to prefill workers: first come, first served, but short ones sooner."""

    age: Annotated[
        PositiveDuration,
        Field(
            description="A prompt that has waited this long goes before all that have not, in the order of arrival, "
            "whatever its class: nothing waits for ever behind what is shorter or more urgent."
        ),
    ] = "10s"


class Overload(ApiModel):
    """When requests are refused, with status 429 and the time after which to try again."""

    max_wait: Annotated[
        PositiveDuration,
        Field(
            description="Longest predicted wait for a prefill worker. Classes of lower priority wait longer, and so "
            "are refused first."
        ),
    ] = "60s"
    max_queued_tokens: Annotated[
        int | None,
        Field(
            ge=1,
            le=1_000_000_000_000,
            description="Prompt tokens that may wait in one router pod. The class of lowest priority gets half of "
            "this, the highest all of it. Default: no limit.",
        ),
    ] = None


class RequestClass(ApiModel):
    """Requests that are alike in how urgent they are."""

    name: Annotated[
        ClassName,
        Field(
            description="A request names its class in the header x-gateway-inference-objective. Requests that name "
            "none, or one that is neither listed nor an InferenceObjective of the cluster's InferencePool, are of the "
            "class `standard`, which need not be listed."
        ),
    ]
    priority: Annotated[
        int,
        Field(
            ge=-1000,
            le=1000,
            description="Classes of higher priority go first, and are refused last. An InferenceObjective of the "
            "class's name, of the cluster's InferencePool, says it instead.",
        ),
    ] = 0
    ttft: Annotated[
        PositiveDuration | None,
        Field(
            description="Objective of the time to first token, by which classes of equal priority are weighed. "
            "Default: the longest of objectives.ttft."
        ),
    ] = None
    age: Annotated[PositiveDuration | None, Field(description="As in order. Default: that.")] = None
    max_wait: Annotated[PositiveDuration | None, Field(description="As in overload. Default: that.")] = None


class BuiltInRouter(ApiModel):
    """Envoy with Swingpool's endpoint picker."""

    model_config = rules(
        Rule(
            cel="!has(self.apiKeys) || !has(self.authorizer)",
            message="give at most one of apiKeys and authorizer: each of them takes the credentials off",
            field=".authorizer",
            reason="FieldValueForbidden",
        ),
        Rule(
            cel="!has(self.kvEvents) || !has(self.workerTls)",
            message="give at most one of kvEvents and workerTls: events carry prompts' token ids, and know no TLS",
            field=".kvEvents",
            reason="FieldValueForbidden",
        ),
    )

    replicas: Annotated[int, Field(ge=1, le=64, description="Router pods.")] = 1
    service_type: Annotated[ServiceType, Field(description="Type of the router's Service, as Kubernetes calls it.")] = (
        ServiceType.CLUSTER_IP
    )
    session_affinity: Annotated[
        SessionAffinity,
        Field(
            description="ClientIP: the Service sends all that comes from one address to one router pod, whose picker "
            "so knows where that client's conversations lie in workers' caches. Not for clients behind few addresses."
        ),
    ] = SessionAffinity.NONE
    tls: Annotated[Tls | None, Field(description="HTTPS in front of the router. Default: HTTP.")] = None
    api_keys: Annotated[
        ApiKeys | None, Field(description="Keys that requests need. Default: whoever reaches the router may use it.")
    ] = None
    authorizer: Annotated[
        Authorizer | None,
        Field(
            description="A service that is asked about each request before anything else is decided about it. Default: "
            "none."
        ),
    ] = None
    rate_limit: Annotated[
        RateLimit | None,
        Field(
            description="Limit for each tenant. A tenant is the client of an API key, what the authorizer says, or, "
            "without either, what the request names in the header x-gateway-inference-fairness-id. Default: none."
        ),
    ] = None
    worker_tls: Annotated[
        WorkerTls | None,
        Field(
            description="TLS between router and workers, by which each knows the other. A change of it restarts both. "
            "KV cache goes from worker to worker by its connector's own ways. Default: plain HTTP."
        ),
    ] = None
    kv_events: Annotated[
        KVEvents | None,
        Field(
            description="Workers publish which blocks their KV caches hold, and every picker follows all of them: it "
            "knows what lies where, whoever sent it there, instead of estimating it from what it sent itself. Anyone "
            "who reaches the workers' ports can read prompts' token ids. Default: it is estimated."
        ),
    ] = None
    inference_pool: Annotated[
        InferencePool | None,
        Field(
            description="Write an InferencePool of this cluster's name, so that gateways of others send to its workers "
            "as the picker says. It needs the CRDs of the Gateway API inference extension, v1. InferenceObjectives "
            "that name it set priorities of classes. Default: none."
        ),
    ] = None
    order: Annotated[Order, Field(description="In what order waiting prompts go to prefill workers.")] = Order()
    overload: Annotated[Overload, Field(description="When requests are refused.")] = Overload()
    request_log: Annotated[
        RequestLog,
        Field(
            description="Stdout: the picker writes a line for each request to its standard output, which swingpool "
            "simulate reads: times, lengths, class and tenant, hashes of the prompt's blocks, no text."
        ),
    ] = RequestLog.NONE
    classes: Annotated[
        tuple[RequestClass, ...],
        Field(
            max_length=16,
            description="Classes of requests. Within a priority, tenants get equal shares of the prefill workers; a "
            "request names its tenant in the header x-gateway-inference-fairness-id.",
            json_schema_extra=list_map(),
        ),
    ] = ()


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


class MetricsSource(StrEnum):
    """Who tells the load of workers before an external router."""

    WORKERS = "Workers"
    PROMETHEUS = "Prometheus"


MetricLabel = Annotated[
    str,
    Field(min_length=1, max_length=128, pattern=r"^[a-zA-Z_][a-zA-Z0-9_]*$"),
    matches(r"^[a-zA-Z_][a-zA-Z0-9_]*$", message="must be a Prometheus label: letters, digits and underscores"),
]


class SeriesLabel(ApiModel):
    """A label that series must have."""

    name: Annotated[MetricLabel, Field(description="Its name in Prometheus.")]
    value: Annotated[str, Field(max_length=256, description="Its value, exactly.")]


class PrometheusSeries(ApiModel):
    """Which of Prometheus' series are this cluster's."""

    pod_label: Annotated[MetricLabel, Field(description="Label that holds a series' pod.")] = "pod"
    namespace_label: Annotated[MetricLabel, Field(description="Label that holds its namespace.")] = "namespace"
    labels: Annotated[
        tuple[SeriesLabel, ...],
        Field(
            max_length=16,
            description="Further labels that series must have, such as the name of the Kubernetes cluster where one "
            "Prometheus holds several.",
            json_schema_extra=list_map(),
        ),
    ] = ()


class ExternalMetrics(ApiModel):
    """Where the load of workers before an external router is read."""

    model_config = rules(
        Rule(
            cel="self.source == 'Prometheus' || !has(self.prometheus)",
            message="prometheus is for source Prometheus only: remove it, or set source to Prometheus",
            field=".prometheus",
            reason="FieldValueForbidden",
        ),
    )

    source: Annotated[
        MetricsSource,
        Field(
            description="Workers: the manager reads each worker's /metrics, which needs nothing installed. "
            "Prometheus: it asks the Prometheus that it was started with (--prometheus-url) for the same series, "
            "where it cannot reach workers itself; figures are then as old as that scrapes them, 15 s at most "
            "being advised."
        ),
    ] = MetricsSource.WORKERS
    prometheus: Annotated[
        PrometheusSeries,
        Field(
            description="Which series are this cluster's; only with source Prometheus.",
            json_schema_extra={NO_WRITTEN_DEFAULT: True},
        ),
    ] = PrometheusSeries()


class ExternalRouter(ApiModel):
    """A router of another project that follows pod labels."""

    role_labels: Annotated[RoleLabels, Field(description="The label by which it tells roles apart.")] = RoleLabels()
    drain_settle: Annotated[
        Duration, Field(description="How long a draining worker must be idle before its role changes.")
    ] = "6s"
    metrics: Annotated[ExternalMetrics, Field(description="Where the load is read.")] = ExternalMetrics()


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
