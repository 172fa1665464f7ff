"""Envoy's bootstrap as plain data: everything the data plane does that the picker does not do per request.

Envoy carries the bytes; the picker decides. So that a picker that is away costs placement and nothing else, whatever
can be said once is said here: what is retried and on which worker, which hosts are alive, what a client may not send,
how Envoy's own errors read.
"""

from dataclasses import dataclass
from typing import Any

from swingpool_control import names

Config = dict[str, Any]

WORKERS_CLUSTER = "workers"
PICKER_CLUSTER = "picker"
ACCESS_LOG = "swingpool"
EDS_DIRECTORY = "/run/swingpool"
EDS_FILE = f"{EDS_DIRECTORY}/eds.json"
HEALTH_PATH = "/healthz"
DECISION_PATHS = ("/v1/completions", "/v1/chat/completions")
"""Where the picker reads the body and runs a prefill leg; other paths under /v1 only get a worker."""

TAG_FIRST_BODY_US = "first_body_us"
"""Access-log tag: microseconds from the request's first byte to the first byte of the worker's body, `-` before it."""

BUFFER_LIMIT_BYTES = 64 * 1024 * 1024
PREFILL_TIMEOUT_S = 600
STREAM_IDLE_TIMEOUT_S = 3600
HOSTILE_HEADERS = (
    names.HEADER_DESTINATION,
    "x-prefiller-host-port",
    "x-encoder-hosts-ports",
    "x-data-parallel-host-port",
    "x-data-parallel-rank",
    "x-kv-cache-source-host-port",
    "x-envoy-retry-on",
    "x-envoy-max-retries",
    "x-envoy-retriable-status-codes",
    "x-envoy-retriable-header-names",
    "x-envoy-upstream-rq-timeout-ms",
    "x-envoy-upstream-rq-per-try-timeout-ms",
    "x-envoy-hedge-on-per-try-timeout",
    "x-envoy-original-path",
    "x-envoy-decorator-operation",
)
"""Headers by which a client could choose a host or bend a retry: taken off before anything reads them."""

_TYPE = "type.googleapis.com/envoy"
_MONITORS = f"{_TYPE}.extensions.resource_monitors"
_UNLIMITED = 1_000_000
_NO_PATH = "there is no such path; the API lives under /v1"
_LOCAL_ERRORS: tuple[tuple[tuple[str, ...], int, str], ...] = (
    (("UH", "UF", "UC", "UR", "URX", "LH", "UO", "OM"), 503, "no worker could serve the request"),
    (("UT", "SI", "DT", "UMSDR"), 504, "the request took longer than the router waits"),
    (("UPE",), 502, "a worker's answer was no valid HTTP"),
    (("DPE", "IH"), 400, "the request is no valid HTTP"),
)
"""Envoy's response flags, the status that clients get, and what it means to them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvoySettings:
    """Where Envoy listens and whom it talks to; the defaults are those of the router pod."""

    node_id: str = "router"
    """Names this Envoy in its own logs; xDS demands one."""
    listen_address: str = "0.0.0.0"  # noqa: S104 - the router's Service reaches it here
    listen_port: int = names.PORT_ROUTER
    picker_port: int = names.PORT_PICKER_GRPC
    admin_port: int = names.PORT_ENVOY_ADMIN
    eds_file: str = EDS_FILE


def bootstrap(settings: EnvoySettings | None = None) -> Config:
    """Return Envoy's whole configuration, ready for `json.dumps`; every duration in it is a string of seconds."""
    chosen = settings or EnvoySettings()
    return {
        "node": {"id": chosen.node_id, "cluster": ACCESS_LOG},
        "admin": {"address": _address("127.0.0.1", chosen.admin_port)},
        "static_resources": {
            "listeners": [_listener(chosen)],
            "clusters": [_workers_cluster(chosen), _picker_cluster(chosen)],
        },
        "overload_manager": {
            "resource_monitors": [
                {
                    "name": "envoy.resource_monitors.global_downstream_max_connections",
                    "typed_config": {
                        "@type": f"{_MONITORS}.downstream_connections.v3.DownstreamConnectionsConfig",
                        "max_active_downstream_connections": 50_000,
                    },
                }
            ]
        },
    }


def _address(host: str, port: int) -> Config:
    return {"socket_address": {"address": host, "port_value": port}}


def _seconds(value: float) -> str:
    return f"{value:g}s"


def _picker_service(timeout_s: float) -> Config:
    return {"envoy_grpc": {"cluster_name": PICKER_CLUSTER}, "timeout": _seconds(timeout_s)}


def _listener(settings: EnvoySettings) -> Config:
    return {
        "name": "router",
        "address": _address(settings.listen_address, settings.listen_port),
        "per_connection_buffer_limit_bytes": BUFFER_LIMIT_BYTES,
        # Clients that vanished without a word are noticed within two minutes.
        "socket_options": _keepalive_options(idle_s=60, interval_s=10, probes=6),
        "filter_chains": [
            {
                "filters": [
                    {"name": "envoy.filters.network.http_connection_manager", "typed_config": _connection_manager()}
                ]
            }
        ],
    }


def _keepalive_options(*, idle_s: int, interval_s: int, probes: int) -> list[Config]:
    return [
        _socket_option("SO_KEEPALIVE", 1, 9, 1),
        _socket_option("TCP_KEEPIDLE", 6, 4, idle_s),
        _socket_option("TCP_KEEPINTVL", 6, 5, interval_s),
        _socket_option("TCP_KEEPCNT", 6, 6, probes),
    ]


def _dead_node_options() -> list[Config]:
    """Notice within 5 s that a node is gone: by probes while nothing is on its way, by the time to acknowledge else."""
    return [*_keepalive_options(idle_s=2, interval_s=1, probes=3), _socket_option("TCP_USER_TIMEOUT", 6, 18, 5000)]


def _socket_option(name: str, level: int, number: int, value: int) -> Config:
    """Return an option by Linux's numbers."""
    return {"description": name, "level": level, "name": number, "int_value": value, "state": "STATE_PREBIND"}


def _connection_manager() -> Config:
    return {
        "@type": f"{_TYPE}.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "router",
        "codec_type": "AUTO",
        "use_remote_address": True,
        "normalize_path": True,
        "merge_slashes": True,
        "preserve_external_request_id": True,
        "always_set_request_id_in_response": True,
        "server_header_transformation": "PASS_THROUGH",
        "common_http_protocol_options": {"idle_timeout": "300s"},
        "request_headers_timeout": "15s",
        "stream_idle_timeout": _seconds(STREAM_IDLE_TIMEOUT_S),
        "drain_timeout": "5s",
        "access_log": [_access_log()],
        # The first tokens of a long answer are told soon, not when it ends.
        "access_log_options": {"access_log_flush_interval": "0.5s"},
        "early_header_mutation_extensions": [_strip_hostile_headers()],
        "http_filters": [_health_filter(), _ext_proc_filter(), _router_filter()],
        "local_reply_config": _local_replies(),
        "route_config": {
            "name": "router",
            "virtual_hosts": [
                {
                    "name": "router",
                    "domains": ["*"],
                    "request_body_buffer_limit": BUFFER_LIMIT_BYTES,
                    "include_attempt_count_in_response": False,
                    "retry_policy": _retry_policy(),
                    "routes": _routes(),
                }
            ],
        },
    }


def _strip_hostile_headers() -> Config:
    return {
        "name": "envoy.http.early_header_mutation.header_mutation",
        "typed_config": {
            "@type": f"{_TYPE}.extensions.http.early_header_mutation.header_mutation.v3.HeaderMutation",
            "mutations": [{"remove": header} for header in HOSTILE_HEADERS],
        },
    }


def _access_log() -> Config:
    return {
        "name": "envoy.access_loggers.http_grpc",
        "filter": {
            "header_filter": {"header": {"name": ":path", "string_match": {"prefix": "/v1/"}}},
        },
        "typed_config": {
            "@type": f"{_TYPE}.extensions.access_loggers.grpc.v3.HttpGrpcAccessLogConfig",
            "common_config": {
                "log_name": ACCESS_LOG,
                "transport_api_version": "V3",
                "grpc_service": _picker_service(10),
                "buffer_flush_interval": "0.1s",
                "custom_tags": [
                    {"tag": TAG_FIRST_BODY_US, "value": "%COMMON_DURATION(DS_RX_BEG:US_RX_BODY_BEG:us)%"},
                ],
            },
        },
    }


def _health_filter() -> Config:
    return {
        "name": "envoy.filters.http.health_check",
        "typed_config": {
            "@type": f"{_TYPE}.extensions.filters.http.health_check.v3.HealthCheck",
            "pass_through_mode": False,
            "headers": [{"name": ":path", "string_match": {"exact": HEALTH_PATH}}],
        },
    }


def _ext_proc_filter() -> Config:
    return {
        "name": "envoy.filters.http.ext_proc",
        "typed_config": {
            "@type": f"{_TYPE}.extensions.filters.http.ext_proc.v3.ExternalProcessor",
            "grpc_service": _picker_service(PREFILL_TIMEOUT_S),
            "message_timeout": _seconds(PREFILL_TIMEOUT_S),
            "failure_mode_allow": True,
            "processing_mode": _processing_mode("BUFFERED"),
        },
    }


def _processing_mode(body: str) -> Config:
    return {
        "request_header_mode": "SEND",
        "request_body_mode": body,
        "response_header_mode": "SKIP",
        "response_body_mode": "NONE",
        "request_trailer_mode": "SKIP",
        "response_trailer_mode": "SKIP",
    }


def _per_route_ext_proc(override: Config) -> Config:
    return {
        "envoy.filters.http.ext_proc": {"@type": f"{_TYPE}.extensions.filters.http.ext_proc.v3.ExtProcPerRoute"}
        | override
    }


def _router_filter() -> Config:
    return {
        "name": "envoy.filters.http.router",
        "typed_config": {
            "@type": f"{_TYPE}.extensions.filters.http.router.v3.Router",
            "suppress_envoy_headers": True,
        },
    }


def _routes() -> list[Config]:
    to_workers = {
        "cluster": WORKERS_CLUSTER,
        "timeout": "0s",
        "idle_timeout": _seconds(STREAM_IDLE_TIMEOUT_S),
        "max_stream_duration": {"max_stream_duration": "0s"},
    }
    decided = [
        {
            "name": path,
            "match": {
                "path": path,
                "headers": [{"name": ":method", "string_match": {"exact": "POST"}}],
            },
            "route": to_workers,
        }
        for path in DECISION_PATHS
    ]
    passed = {
        "name": "v1",
        "match": {"prefix": "/v1/"},
        "route": to_workers,
        "typed_per_filter_config": _per_route_ext_proc({"overrides": {"processing_mode": _processing_mode("NONE")}}),
    }
    unknown = {
        "name": "unknown",
        "match": {"prefix": "/"},
        "direct_response": {"status": 404},
        "typed_per_filter_config": _per_route_ext_proc({"disabled": True}),
    }
    return [*decided, passed, unknown]


def _retry_policy() -> Config:
    """Retry on another worker as long as nothing of an answer has come: Envoy never retries after that."""
    return {
        "retry_on": "connect-failure,refused-stream,reset,retriable-status-codes",
        "retriable_status_codes": [503],
        "num_retries": 3,
        "retry_host_predicate": [
            {
                "name": "envoy.retry_host_predicates.previous_hosts",
                "typed_config": {
                    "@type": f"{_TYPE}.extensions.retry.host.previous_hosts.v3.PreviousHostsPredicate",
                },
            }
        ],
        "host_selection_retry_max_attempts": 5,
        "retry_back_off": {"base_interval": "0.01s", "max_interval": "0.1s"},
    }


def _local_replies() -> Config:
    """Errors of Envoy's own read like the API's. What the picker answers is one already and stays as it is."""
    outside = {"header_filter": {"header": {"name": ":path", "string_match": {"prefix": "/v1/"}, "invert_match": True}}}
    mappers = [
        _mapper({"and_filter": {"filters": [_status_is(404), outside]}}, 404, _NO_PATH),
        _mapper(_status_is(413), 413, f"the body is larger than {BUFFER_LIMIT_BYTES} bytes"),
    ]
    for flags, status, message in _LOCAL_ERRORS:
        mappers.append(_mapper({"response_flag_filter": {"flags": list(flags)}}, status, message))
    return {"mappers": mappers}


def _mapper(when: Config, status: int, message: str) -> Config:
    return {
        "filter": when,
        "status_code": status,
        "body_format_override": {
            "content_type": "application/json",
            "json_format": {
                "error": {
                    "message": f"{message} (request %REQ(X-REQUEST-ID)%)",
                    "type": "server_error" if status >= 500 else "invalid_request_error",
                    "param": None,
                    "code": status,
                }
            },
        },
    }


def _status_is(status: int) -> Config:
    value = {"default_value": status, "runtime_key": f"swingpool.status_{status}"}
    return {"status_code_filter": {"comparison": {"op": "EQ", "value": value}}}


def _limits() -> Config:
    """Lift Envoy's default caps (1024 requests, 3 retries at a time): workers queue by themselves, and know best."""
    return {
        "thresholds": [
            {
                "max_connections": _UNLIMITED,
                "max_pending_requests": _UNLIMITED,
                "max_requests": _UNLIMITED,
                "max_retries": _UNLIMITED,
            }
        ]
    }


def _workers_cluster(settings: EnvoySettings) -> Config:
    directory = settings.eds_file.rpartition("/")[0] or "."
    return {
        "name": WORKERS_CLUSTER,
        "type": "EDS",
        "connect_timeout": "1s",
        "per_connection_buffer_limit_bytes": BUFFER_LIMIT_BYTES,
        "eds_cluster_config": {
            "eds_config": {
                "resource_api_version": "V3",
                "path_config_source": {"path": settings.eds_file, "watched_directory": {"path": directory}},
            }
        },
        "load_balancing_policy": {
            "policies": [
                {
                    "typed_extension_config": {
                        "name": "envoy.load_balancing_policies.override_host",
                        "typed_config": {
                            "@type": f"{_TYPE}.extensions.load_balancing_policies.override_host.v3.OverrideHost",
                            "override_host_sources": [{"header": names.HEADER_DESTINATION}],
                            "fallback_policy": {"policies": [_round_robin()]},
                        },
                    }
                }
            ]
        },
        # Never a worker that failed its check, even if most did: the picker knows which of them to try.
        "common_lb_config": {"healthy_panic_threshold": {"value": 0}},
        "circuit_breakers": _limits(),
        "health_checks": [_health_check()],
        "upstream_bind_config": {"socket_options": _dead_node_options()},
        "typed_extension_protocol_options": {
            "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
                "@type": f"{_TYPE}.extensions.upstreams.http.v3.HttpProtocolOptions",
                # Below the 5 s after which vLLM's server closes an idle connection itself.
                "common_http_protocol_options": {"idle_timeout": "4s"},
                "explicit_http_config": {"http_protocol_options": {}},
            }
        },
    }


def _health_check() -> Config:
    """Keep hosts that do not answer from being fallen back on, above all while the picker is away.

    It ends no request that such a host holds: those wait until their connection breaks, as it does when the liveness
    probe kills a hung worker, or when a node is lost.
    """
    return {
        "http_health_check": {"path": "/health"},
        "interval": "1s",
        "no_traffic_interval": "1s",
        "timeout": "1s",
        "unhealthy_threshold": 2,
        "healthy_threshold": 1,
    }


def _round_robin() -> Config:
    return {
        "typed_extension_config": {
            "name": "envoy.load_balancing_policies.round_robin",
            "typed_config": {"@type": f"{_TYPE}.extensions.load_balancing_policies.round_robin.v3.RoundRobin"},
        }
    }


def _picker_cluster(settings: EnvoySettings) -> Config:
    return {
        "name": PICKER_CLUSTER,
        "type": "STATIC",
        "connect_timeout": "0.25s",
        "per_connection_buffer_limit_bytes": BUFFER_LIMIT_BYTES,
        "circuit_breakers": _limits(),
        "typed_extension_protocol_options": {
            "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
                "@type": f"{_TYPE}.extensions.upstreams.http.v3.HttpProtocolOptions",
                "explicit_http_config": {"http2_protocol_options": {"max_concurrent_streams": 100_000}},
            }
        },
        "load_assignment": {
            "cluster_name": PICKER_CLUSTER,
            "endpoints": [{"lb_endpoints": [{"endpoint": {"address": _address("127.0.0.1", settings.picker_port)}}]}],
        },
    }
