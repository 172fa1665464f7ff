"""Envoy's bootstrap as plain data: everything the data plane does that the picker does not do per request.

Envoy carries the bytes; the picker decides. So that a picker that is away costs placement and nothing else, whatever
can be said once is said here and in the parts: what is retried and on which worker, which hosts are alive, what a
client may not send, how Envoy's own errors read.
"""

from swingpool_control import names
from swingpool_control.resources.envoy_access import tls_socket
from swingpool_control.resources.envoy_authorizer import authorizer_clusters
from swingpool_control.resources.envoy_hold import upstream_filters
from swingpool_control.resources.envoy_http import connection_manager
from swingpool_control.resources.envoy_settings import (
    ACCESS_LOG,
    BUFFER_LIMIT_BYTES,
    DECISION_PATHS,
    EDS_DIRECTORY,
    EDS_FILE,
    FORM_TYPE,
    HEALTH_PATH,
    PASSED_ON,
    PICKER_CLUSTER,
    PICKER_SOCKET,
    STREAMED_ABOVE_BYTES,
    TAG_FIRST_BODY_US,
    TYPE,
    WORKERS_CLUSTER,
    Config,
    EnvoySettings,
    address,
    http2,
    unlimited,
)
from swingpool_control.resources.envoy_tracing import trace_clusters
from swingpool_control.resources.envoy_worker_tls import worker_sockets

__all__ = [
    "BUFFER_LIMIT_BYTES",
    "DECISION_PATHS",
    "EDS_DIRECTORY",
    "EDS_FILE",
    "FORM_TYPE",
    "HEALTH_PATH",
    "PASSED_ON",
    "PICKER_CLUSTER",
    "PICKER_SOCKET",
    "STREAMED_ABOVE_BYTES",
    "TAG_FIRST_BODY_US",
    "WORKERS_CLUSTER",
    "EnvoySettings",
    "bootstrap",
]

_MONITORS = f"{TYPE}.extensions.resource_monitors"
_HEAP = "envoy.resource_monitors.fixed_heap"


def bootstrap(settings: EnvoySettings | None = None) -> Config:
    """Return Envoy's whole configuration, ready for `json.dumps`; every duration in it is a string of seconds."""
    chosen = settings or EnvoySettings()
    return {
        "node": {"id": chosen.node_id, "cluster": ACCESS_LOG},
        "admin": {"address": address("127.0.0.1", chosen.admin_port)},
        "static_resources": {
            "listeners": [_listener(chosen)],
            "clusters": [
                _workers_cluster(chosen),
                _picker_cluster(chosen),
                *authorizer_clusters(chosen),
                *trace_clusters(chosen),
            ],
        },
        "overload_manager": _overload_manager(chosen),
        # Nobody takes statistics but whoever asks for them.
        "stats_flush_on_admin": True,
    }


def _overload_manager(settings: EnvoySettings) -> Config:
    """Refuse new requests before memory ends: whole bodies are kept, and a killed Envoy would lose every answer."""
    return {
        "refresh_interval": "0.25s",
        "resource_monitors": [
            {
                "name": "envoy.resource_monitors.global_downstream_max_connections",
                "typed_config": {
                    "@type": f"{_MONITORS}.downstream_connections.v3.DownstreamConnectionsConfig",
                    "max_active_downstream_connections": 50_000,
                },
            },
            {
                "name": _HEAP,
                "typed_config": {
                    "@type": f"{_MONITORS}.fixed_heap.v3.FixedHeapConfig",
                    "max_heap_size_bytes": settings.heap_bytes,
                },
            },
        ],
        "actions": [
            _when_heap_is("envoy.overload_actions.shrink_heap", 0.8),
            _when_heap_is("envoy.overload_actions.stop_accepting_requests", 0.9),
        ],
    }


def _when_heap_is(action: str, threshold: float) -> Config:
    return {"name": action, "triggers": [{"name": _HEAP, "threshold": {"value": threshold}}]}


def _listener(settings: EnvoySettings) -> Config:
    return {
        "name": "router",
        "address": address(settings.listen_address, settings.listen_port),
        "per_connection_buffer_limit_bytes": BUFFER_LIMIT_BYTES,
        # Else chance gives one thread more of them, and they wait for it as long as they last.
        "connection_balance_config": {"exact_balance": {}},
        # Clients that vanished without a word are noticed within two minutes.
        "socket_options": _keepalive_options(idle_s=60, interval_s=10, probes=6),
        "filter_chains": [
            {
                "filters": [
                    {
                        "name": "envoy.filters.network.http_connection_manager",
                        "typed_config": connection_manager(settings),
                    }
                ]
            }
            | tls_socket(settings)
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
                            "@type": f"{TYPE}.extensions.load_balancing_policies.override_host.v3.OverrideHost",
                            "override_host_sources": [{"header": names.HEADER_DESTINATION}],
                            "fallback_policy": {"policies": [_round_robin()]},
                        },
                    }
                }
            ]
        },
        # Never a worker that failed its check, even if most did: the picker knows which of them to try.
        # Whom Envoy finds healthy counts at once, not within its usual second.
        "common_lb_config": {"healthy_panic_threshold": {"value": 0}, "update_merge_window": "0s"},
        "circuit_breakers": unlimited(),
        **worker_sockets(settings.worker_tls),
        "health_checks": [_health_check()],
        "upstream_bind_config": {"socket_options": _dead_node_options()},
        "typed_extension_protocol_options": {
            "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
                "@type": f"{TYPE}.extensions.upstreams.http.v3.HttpProtocolOptions",
                # Below the 5 s after which vLLM's server closes an idle connection itself.
                "common_http_protocol_options": {"idle_timeout": "4s"},
                "explicit_http_config": {"http_protocol_options": {}},
                "http_filters": upstream_filters(),
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
            "typed_config": {"@type": f"{TYPE}.extensions.load_balancing_policies.round_robin.v3.RoundRobin"},
        }
    }


def _picker_address(settings: EnvoySettings) -> Config:
    if settings.picker_port is None:
        return {"pipe": {"path": settings.picker_socket}}
    return address("127.0.0.1", settings.picker_port)


def _picker_cluster(settings: EnvoySettings) -> Config:
    return {
        "name": PICKER_CLUSTER,
        "type": "STATIC",
        "connect_timeout": "0.25s",
        "per_connection_buffer_limit_bytes": BUFFER_LIMIT_BYTES,
        "circuit_breakers": unlimited(),
        **http2(),
        "load_assignment": {
            "cluster_name": PICKER_CLUSTER,
            "endpoints": [{"lb_endpoints": [{"endpoint": {"address": _picker_address(settings)}}]}],
        },
    }
