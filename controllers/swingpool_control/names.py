"""Every name that two processes must agree on: API group, labels, annotations, ports, children's names."""

from typing import Final

GROUP = "swingpool.dev"
VERSION = "v1alpha1"
KIND = "InferenceCluster"
PLURAL = "inferenceclusters"
SHORT_NAME = "swp"

MANAGED_BY = "swingpool"
"""Value of `app.kubernetes.io/managed-by` on every child; the manager watches children by it."""

LABEL_MANAGED_BY = "app.kubernetes.io/managed-by"
LABEL_COMPONENT = "app.kubernetes.io/component"
COMPONENT_WORKER = "worker"
CONTAINER_WORKER = "worker"
"""Name of the engine's container in a worker pod."""
COMPONENT_ROUTER = "router"
LABEL_CLUSTER = f"{GROUP}/cluster"
LABEL_POOL = f"{GROUP}/pool"
LABEL_ROLE = f"{GROUP}/role"
"""A worker pod's role now: one of the ROLE_ values. The picker, or any router that watches labels, follows it."""

LABEL_GENERATION = f"{GROUP}/kv-generation"
"""Which workers can exchange KV cache: a hash of everything that their handshake compares."""

LABEL_TLS = f"{GROUP}/tls"
"""On a worker pod: that it speaks TLS. Its value says nothing."""
LABEL_KV_EVENTS = f"{GROUP}/kv-events"
"""On a worker pod: that it publishes what its KV cache holds. Its value says nothing."""

ROLE_PREFILL: Final = "prefill"
ROLE_DECODE: Final = "decode"
ROLE_DRAINING: Final = "draining"
ROLE_ASLEEP: Final = "asleep"
"""A worker of a pool's warm reserve: it gets nothing until it is woken."""

ANNOTATION_FLIP = f"{GROUP}/flip"
"""On a worker pod: the flip under way, as JSON, written in the same patch as the role label."""

ANNOTATION_DRAIN = f"{GROUP}/drain"
"""On a worker pod: that it is being drained before a scale-down, as JSON."""

ANNOTATION_ASLEEP = f"{GROUP}/asleep"
"""On a worker pod: that it sleeps, is about to, or wakes, as JSON."""

ANNOTATION_DESIRED_HASH = f"{GROUP}/desired-hash"
"""On a child: hash of what the manager asked for, so that asking again needs no write."""

ANNOTATION_DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"

FIELD_MANAGER = "swingpool"
FIELD_MANAGER_REPLICAS = "swingpool-scaler"
FIELD_MANAGER_STATUS = "swingpool-status"

PORT_WORKER = 8000
PORT_SIDE_CHANNEL = 5600
"""NIXL's handshake port on a worker."""
PORT_KV_EVENTS, PORT_KV_REPLAY = 5700, 5701
"""Where a worker publishes what its KV cache holds, and where it tells again what it published."""
PORT_ROUTER = 8080
"""Where Envoy listens in the router pod; the Service maps port 80 to it."""
PORT_PICKER_GRPC = 9002
"""The picker's ext_proc and access-log services, on loopback, where they have no Unix socket."""
PORT_PICKER_HTTP = 9090
"""The picker's /metrics, /state, /healthz and /readyz, on the pod's address."""
PORT_PICKER_GATEWAY = 9003
"""Where gateways of others ask the picker, over TLS; its Service has the port SERVICE_PORT_PICKER."""
SERVICE_PORT_PICKER = 9002
PORT_ENVOY_ADMIN = 9901
PORT_MANAGER_HEALTH = 8081
PORT_MANAGER_METRICS = 9090

HEADER_DESTINATION = "x-gateway-destination-endpoint"
HEADER_REQUEST_ID = "x-request-id"
HEADER_CLASS = "x-gateway-inference-objective"
"""Names a request's class, as in the Gateway API inference extension."""
HEADER_TENANT = "x-gateway-inference-fairness-id"
"""Says whose a request is, as there."""

HEADER_TRACE = "traceparent"
"""Whose span a request belongs to, as W3C's Trace Context writes it."""
TRACES_PATH = "/v1/traces"
"""Where a receiver of OTLP over HTTP takes traces."""

MAX_CLUSTER_NAME = 40
MAX_POOL_NAME = 20
"""Together with the dash they leave `<cluster>-<pool>` within the 63 characters of a label or a Service name."""

RESERVED_POOL_NAMES = ("router", "workers", "worker")
"""Pool names whose child would collide with a child of another kind."""


def pool_deployment(cluster: str, pool: str) -> str:
    """Name of a pool's Deployment and PodDisruptionBudget."""
    return f"{cluster}-{pool}"


def router(cluster: str) -> str:
    """Name of the router's Deployment, Service, ConfigMap, ServiceAccount, Role and RoleBinding."""
    return f"{cluster}-router"


def picker(cluster: str) -> str:
    """Name of the Service of a cluster's endpoint picker, for gateways of others; what it is called in traces."""
    return f"{cluster}-picker"


def workers_service(cluster: str) -> str:
    """Name of the headless Service over all workers of a cluster."""
    return f"{cluster}-workers"


def worker_service_account(cluster: str) -> str:
    """Name of the ServiceAccount that workers run as."""
    return f"{cluster}-worker"
