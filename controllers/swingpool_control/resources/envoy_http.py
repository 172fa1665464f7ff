"""How Envoy treats an HTTP request: what it strips, asks the picker, routes, retries and tells in the access log."""

from swingpool_control import names
from swingpool_control.resources.envoy_access import access_filters
from swingpool_control.resources.envoy_errors import local_replies
from swingpool_control.resources.envoy_exchange import (
    SECOND_TRY_AFTER,
    exchange_filters,
    not_told,
    told_at_once,
    told_in_pieces,
    told_without_body,
)
from swingpool_control.resources.envoy_settings import (
    ACCESS_LOG,
    BUFFER_LIMIT_BYTES,
    DECISION_PATHS,
    FORM_TYPE,
    HEALTH_PATH,
    STREAMED_ABOVE_BYTES,
    TAG_FIRST_BODY_US,
    TYPE,
    WORKERS_CLUSTER,
    Config,
    EnvoySettings,
    picker_service,
    seconds,
)
from swingpool_control.resources.envoy_tracing import tracing
from swingpool_control.resources.envoy_unread import unread_filters

_MOST_BYTES = 2**62
STREAM_IDLE_TIMEOUT_S = 3600
HOSTILE_HEADERS = (
    names.HEADER_DESTINATION,
    "x-prefiller-host-port",
    "x-encoder-hosts-ports",
    "x-data-parallel-host-port",
    "x-data-parallel-rank",
    "x-kv-cache-source-host-port",
    "x-forwarded-host",
    "x-envoy-retry-on",
    "x-envoy-retry-grpc-on",
    "x-envoy-max-retries",
    "x-envoy-retriable-status-codes",
    "x-envoy-retriable-header-names",
    "x-envoy-upstream-rq-timeout-ms",
    SECOND_TRY_AFTER,
    "x-envoy-upstream-stream-duration-ms",
    "x-envoy-upstream-alt-stat-name",
    "x-envoy-hedge-on-per-try-timeout",
    "x-envoy-original-path",
    "x-envoy-original-dst-host",
    "x-envoy-decorator-operation",
)
"""Headers by which a client could choose a host, bend a retry or make up a metric: taken off before all else."""

TOLD_WITHIN_MS = 1500
TOLD_BELOW_BYTES = 16 * 1024
"""A stream that has sent more had its first token told before, unless it is both late and fast."""
TOLD_PERCENT = 10
"""Of the seconds of a longer one, those in which it is told of, at random: whoever is never told of has ended."""

GENERATION_IS_RETRIED_ON = (500, 503)
"""A worker that is shutting down answers 500: to generate elsewhere instead does no harm but cost."""

OTHERS_ARE_RETRIED_ON = (503,)
"""Of other requests nobody knows what a worker that answers 500 has done already."""


def connection_manager(settings: EnvoySettings) -> Config:
    """Return the HTTP connection manager's configuration."""
    return {
        "@type": f"{TYPE}.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "router",
        "codec_type": "AUTO",
        # Gateways in front speak 1.0 unless told otherwise, nginx for one.
        "http_protocol_options": {"accept_http_10": True, "default_host_for_http_10": "router"},
        "use_remote_address": True,
        "normalize_path": True,
        "merge_slashes": True,
        "preserve_external_request_id": True,
        "always_set_request_id_in_response": True,
        "server_header_transformation": "PASS_THROUGH",
        "common_http_protocol_options": {"idle_timeout": "300s"},
        "request_headers_timeout": "15s",
        "stream_idle_timeout": seconds(STREAM_IDLE_TIMEOUT_S),
        "drain_timeout": "5s",
        "access_log": [_access_log()],
        # The first tokens of a long answer are told soon, not when it ends.
        "access_log_options": {"access_log_flush_interval": "1s"},
        "early_header_mutation_extensions": [_strip_hostile_headers(settings)],
        "http_filters": [
            _health_filter(),
            *access_filters(settings),
            *exchange_filters(),
            *unread_filters(),
            _router_filter(),
        ],
        "local_reply_config": local_replies(),
        "route_config": {
            "name": "router",
            "virtual_hosts": [
                {
                    "name": "router",
                    "domains": ["*"],
                    "request_body_buffer_limit": BUFFER_LIMIT_BYTES,
                    "include_attempt_count_in_response": False,
                    "routes": _routes(),
                }
            ],
        },
    } | tracing(settings)


def _strip_hostile_headers(settings: EnvoySettings) -> Config:
    # With an authorizer, whose a request is stands in its word alone.
    hostile = (*HOSTILE_HEADERS, names.HEADER_TENANT) if settings.authorizer else HOSTILE_HEADERS
    return {
        "name": "envoy.http.early_header_mutation.header_mutation",
        "typed_config": {
            "@type": f"{TYPE}.extensions.http.early_header_mutation.header_mutation.v3.HeaderMutation",
            "mutations": [{"remove": header} for header in hostile],
        },
    }


def _access_log() -> Config:
    return {
        "name": "envoy.access_loggers.http_grpc",
        # An id that is no ASCII cannot be told in an entry, and would break the stream of all of them.
        "filter": {
            "and_filter": {
                "filters": [
                    {"header_filter": {"header": {"name": ":path", "string_match": {"prefix": "/v1/"}}}},
                    {
                        "header_filter": {
                            "header": {
                                "name": names.HEADER_REQUEST_ID,
                                "string_match": {"safe_regex": {"regex": "[ -~]*"}},
                                "treat_missing_header_as_empty": True,
                            }
                        }
                    },
                    {"or_filter": {"filters": _worth_telling()}},
                ]
            }
        },
        "typed_config": {
            "@type": f"{TYPE}.extensions.access_loggers.grpc.v3.HttpGrpcAccessLogConfig",
            "common_config": {
                "log_name": ACCESS_LOG,
                "transport_api_version": "V3",
                "grpc_service": picker_service(10),
                "buffer_flush_interval": "0.1s",
                "custom_tags": [
                    {"tag": TAG_FIRST_BODY_US, "value": "%COMMON_DURATION(DS_RX_BEG:US_RX_BODY_BEG:us)%"},
                ],
            },
        },
    }


def _worth_telling() -> list[Config]:
    """Return when a request is told of that has not ended: until its first token surely was, then now and then.

    Each telling costs as much as a token or two, and those of streams that began together come together.
    """
    still_short = {
        "@type": f"{TYPE}.extensions.access_loggers.filters.cel.v3.ExpressionFilter",
        "expression": f"response.size < {TOLD_BELOW_BYTES}",
    }
    young = {"op": "LE", "value": {"default_value": TOLD_WITHIN_MS, "runtime_key": "swingpool.told_within_ms"}}
    return [
        {"log_type_filter": {"types": ["DownstreamPeriodic"], "exclude": True}},
        {"duration_filter": {"comparison": young}},
        {"extension_filter": {"name": "envoy.access_loggers.extension_filters.cel", "typed_config": still_short}},
        {
            "runtime_filter": {
                "runtime_key": "swingpool.told_percent",
                "percent_sampled": {"numerator": TOLD_PERCENT},
                "use_independent_randomness": True,
            }
        },
    ]


def _health_filter() -> Config:
    return {
        "name": "envoy.filters.http.health_check",
        "typed_config": {
            "@type": f"{TYPE}.extensions.filters.http.health_check.v3.HealthCheck",
            "pass_through_mode": False,
            "headers": [{"name": ":path", "string_match": {"exact": HEALTH_PATH}}],
        },
    }


def _router_filter() -> Config:
    return {
        "name": "envoy.filters.http.router",
        "typed_config": {
            "@type": f"{TYPE}.extensions.filters.http.router.v3.Router",
            "suppress_envoy_headers": True,
            # Counters by status code, which are made up for each request: the picker counts those.
            "dynamic_stats": False,
        },
    }


def _routes() -> list[Config]:
    to_workers = {
        "cluster": WORKERS_CLUSTER,
        "timeout": "0s",
        "idle_timeout": seconds(STREAM_IDLE_TIMEOUT_S),
        "max_stream_duration": {"max_stream_duration": "0s"},
    }
    post = {"name": ":method", "string_match": {"exact": "POST"}}
    generation = to_workers | {
        "retry_policy": _retry_policy(GENERATION_IS_RETRIED_ON),
        # A worker whose first token is overdue may yet be the first: nothing is taken from it.
        "hedge_policy": {"hedge_on_per_try_timeout": True},
    }
    decided = [
        route
        for path in DECISION_PATHS
        for route in (
            _large({"name": f"{path}-large", "match": {"path": path, "headers": [post]}, "route": generation}),
            told_at_once({"name": path, "match": {"path": path, "headers": [post]}, "route": generation}),
        )
    ]
    others = to_workers | {"retry_policy": _retry_policy(OTHERS_ARE_RETRIED_ON)}
    form = {"name": "content-type", "string_match": {"prefix": FORM_TYPE, "ignore_case": True}}
    forms = told_without_body({"name": "v1-forms", "match": {"prefix": "/v1/", "headers": [form]}, "route": others})
    large = _large({"name": "v1-large", "match": {"prefix": "/v1/", "headers": []}, "route": others})
    passed = {"name": "v1", "match": {"prefix": "/v1/"}, "route": others}
    unknown = not_told({"name": "unknown", "match": {"prefix": "/"}, "direct_response": {"status": 404}})
    return [*decided, forms, large, passed, unknown]


def _large(route: Config) -> Config:
    """Return a route for bodies that are not kept: they pass the picker piece by piece, unless they say no length.

    What is larger than Envoy's buffer cannot be sent to a second worker either; Envoy sees to that by itself.
    """
    length = {"name": "content-length", "range_match": {"start": STREAMED_ABOVE_BYTES + 1, "end": _MOST_BYTES}}
    match = route["match"]
    return told_in_pieces(route) | {"match": match | {"headers": [*match["headers"], length]}}


def _retry_policy(statuses: tuple[int, ...]) -> Config:
    """Retry on another worker as long as nothing of an answer has come: Envoy never retries after that."""
    return {
        "retry_on": "connect-failure,refused-stream,reset,retriable-status-codes",
        "retriable_status_codes": list(statuses),
        "num_retries": 3,
        "retry_host_predicate": [
            {
                "name": "envoy.retry_host_predicates.previous_hosts",
                "typed_config": {
                    "@type": f"{TYPE}.extensions.retry.host.previous_hosts.v3.PreviousHostsPredicate",
                },
            }
        ],
        "host_selection_retry_max_attempts": 5,
        "retry_back_off": {"base_interval": "0.01s", "max_interval": "0.1s"},
    }
