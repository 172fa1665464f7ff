"""Envoy's own spans, and whether a request is traced at all: Envoy decides, picker and workers follow.

A request that brings a `traceparent` has its caller's decision. Envoy tells everyone behind it by the same header, the
picker in the headers of its call, which holds its flag also where nothing is traced: without one a worker would begin a
trace of its own.
"""

from swingpool_control import names
from swingpool_control.resources.envoy_settings import TYPE, Config, EnvoySettings, address

TRACES_CLUSTER = "traces"

_TRACERS = f"{TYPE}.extensions.tracers.opentelemetry"
_SAMPLERS = "envoy.tracers.opentelemetry.samplers"
_MILLION = 1_000_000


def tracing(settings: EnvoySettings) -> Config:
    """Return what the connection manager is told; nothing if requests are not traced."""
    export = settings.traces
    if export is None:
        return {}
    return {
        "tracing": {
            "provider": {
                "name": "envoy.tracers.opentelemetry",
                "typed_config": {
                    "@type": "type.googleapis.com/envoy.config.trace.v3.OpenTelemetryConfig",
                    "service_name": export.service,
                    "http_service": {
                        "http_uri": {
                            "uri": f"http://{export.host}:{export.port}{names.TRACES_PATH}",
                            "cluster": TRACES_CLUSTER,
                            "timeout": "5s",
                        }
                    },
                    "sampler": _sampler(export.sampling_ratio),
                },
            },
            # The sampler has the say. Without the upstream's own span a worker's would hang on the client's request.
            "random_sampling": {"value": 100},
            "spawn_upstream_span": True,
        },
        # Otherwise a request's id decides, and is rewritten for it: one that is no UUID would never be traced.
        "request_id_extension": {
            "typed_config": {
                "@type": f"{TYPE}.extensions.request_id.uuid.v3.UuidRequestIdConfig",
                "pack_trace_reason": False,
                "use_request_id_for_trace_sampling": False,
            }
        },
    }


def trace_clusters(settings: EnvoySettings) -> list[Config]:
    """Return the cluster that receives traces; none if requests are not traced."""
    export = settings.traces
    if export is None:
        return []
    return [
        {
            "name": TRACES_CLUSTER,
            "type": "STRICT_DNS",
            "connect_timeout": "1s",
            "load_assignment": {
                "cluster_name": TRACES_CLUSTER,
                "endpoints": [{"lb_endpoints": [{"endpoint": {"address": address(export.host, export.port)}}]}],
            },
        }
    ]


def _sampler(ratio: float) -> Config:
    share = {"numerator": round(ratio * _MILLION), "denominator": "MILLION"}
    return {
        "name": f"{_SAMPLERS}.parent_based",
        "typed_config": {
            "@type": f"{_TRACERS}.samplers.v3.ParentBasedSamplerConfig",
            "wrapped_sampler": {
                "name": f"{_SAMPLERS}.trace_id_ratio_based",
                "typed_config": {
                    "@type": f"{_TRACERS}.samplers.v3.TraceIdRatioBasedSamplerConfig",
                    "sampling_percentage": share,
                },
            },
        },
    }
