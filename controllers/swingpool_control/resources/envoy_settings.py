"""What the parts of Envoy's configuration share: where it listens, whom it talks to, and names that others read too."""

from dataclasses import dataclass
from typing import Any

from swingpool_control import names

Config = dict[str, Any]

WORKERS_CLUSTER = "workers"
PICKER_CLUSTER = "picker"
ACCESS_LOG = "swingpool"
EDS_DIRECTORY = "/run/swingpool"
EDS_FILE = f"{EDS_DIRECTORY}/eds.json"
PICKER_SOCKET = f"{EDS_DIRECTORY}/picker.sock"
HEALTH_PATH = "/healthz"
DECISION_PATHS = ("/v1/completions", "/v1/chat/completions")
"""Where the picker runs a prefill leg; other paths under /v1 only get a worker."""

FORM_TYPE = "multipart/"
"""Content types of bodies that the picker does not read: files, which no engine takes routing parameters from."""

PASSED_ON = ("authorization", "content-type", "traceparent", "tracestate", names.HEADER_REQUEST_ID)
"""Headers that the prefill leg carries too."""

READ_HEADERS = (*PASSED_ON, names.HEADER_CLASS, names.HEADER_TENANT)
"""What the picker needs of a generation's headers: each costs both sides, and no other says anything to it."""

TOLD_HEADERS = (":method", ":path", "content-length", *READ_HEADERS)
"""What it is told of another request's."""

TAG_FIRST_BODY_US = "first_body_us"
"""Access-log tag: microseconds from the request's first byte to the first byte of the worker's body, `-` before it."""

BUFFER_LIMIT_BYTES = 64 * 1024 * 1024
"""Largest body that is kept whole, for the picker or for retries."""

STREAMED_ABOVE_BYTES = 16 * 1024 * 1024
"""A body that says to be larger goes through piece by piece, to one worker: four million tokens, or pictures."""

TYPE = "type.googleapis.com/envoy"


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantLimit:
    """How many requests one tenant may send through one Envoy."""

    requests_per_s: float
    burst: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthorizerTls:
    """By what Envoy speaks TLS to the authorizer."""

    server_name: str
    """What its certificate must be for: a DNS name or an address."""
    trust_file: str = ""
    """Names its CA; empty for the public ones."""
    certificate_file: str = ""
    """Names Envoy's own certificate; empty for none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthorizerService:
    """Who is asked about each request whether it may pass."""

    host: str
    port: int
    grpc: bool
    """Whether by gRPC; else by HTTP."""
    tls: AuthorizerTls | None = None
    """None for plain text."""
    path: str = ""
    """By HTTP: before the request's own path."""
    timeout_s: float = 1.0
    allows_unanswered: bool = False
    """Whether requests pass while it does not answer."""
    credentials: tuple[str, ...] = ()
    """Headers that it sees, and workers do not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerTlsFiles:
    """By what Envoy speaks TLS to workers."""

    certificate_file: str
    """Names its own certificate."""
    trust_file: str
    """Names the CA of theirs."""
    server_name: str
    """What theirs must be for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceExport:
    """Where Envoy's traces go, by OTLP over HTTP, and how many."""

    host: str
    port: int
    service: str
    """What Envoy is called in them."""
    sampling_ratio: float
    """Share of the requests that bring no decision, 0 to 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvoySettings:
    """Where Envoy listens and whom it talks to; the defaults are those of the router pod."""

    node_id: str = "router"
    """Names this Envoy in its own logs; xDS demands one."""
    listen_address: str = "0.0.0.0"  # noqa: S104 - the router's Service reaches it here
    listen_port: int = names.PORT_ROUTER
    picker_socket: str = PICKER_SOCKET
    """Unix socket on which the picker listens; over loopback, each message costs both sides twice as much."""
    picker_port: int | None = None
    """Its port on loopback, instead."""
    admin_port: int = names.PORT_ENVOY_ADMIN
    eds_file: str = EDS_FILE
    tls_sds_file: str = ""
    """Names the certificate that clients see; empty for plain HTTP."""
    worker_tls: WorkerTlsFiles | None = None
    """None if all workers speak plain HTTP."""
    api_keys_file: str = ""
    """The keys that requests need, which the picker writes; empty if they need none."""
    authorizer: AuthorizerService | None = None
    """None if nobody is asked about requests."""
    tenant_limit: TenantLimit | None = None
    traces: TraceExport | None = None
    """None if requests are not traced."""
    heap_bytes: int = 1792 * 1024 * 1024
    """Most memory to use; new requests are refused a little below it. The pod's limit must be higher."""


def address(host: str, port: int) -> Config:
    """Return a socket address."""
    return {"socket_address": {"address": host, "port_value": port}}


def seconds(value: float) -> str:
    """Return a duration as Envoy reads it."""
    return f"{value:g}s"


def picker_service(timeout_s: float) -> Config:
    """Return a gRPC service of the picker's."""
    # Whose call it is, both know; headers that say so would be sent with each.
    return {"envoy_grpc": {"cluster_name": PICKER_CLUSTER, "skip_envoy_headers": True}, "timeout": seconds(timeout_s)}


def unlimited() -> Config:
    """Lift Envoy's default caps (1024 requests, 3 retries at a time): whoever is asked queues by itself."""
    most = 1_000_000
    return {
        "thresholds": [
            {"max_connections": most, "max_pending_requests": most, "max_requests": most, "max_retries": most}
        ]
    }


def http2() -> Config:
    """Return what a cluster needs that speaks HTTP/2, as gRPC does."""
    return {
        "typed_extension_protocol_options": {
            "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
                "@type": f"{TYPE}.extensions.upstreams.http.v3.HttpProtocolOptions",
                "explicit_http_config": {
                    "http2_protocol_options": {
                        "max_concurrent_streams": 100_000,
                        # A server that hangs is one that is away, long before its liveness probe says so.
                        "connection_keepalive": {"interval": "3s", "timeout": "3s"},
                    }
                },
            }
        }
    }
