"""Traces of workers: vLLM exports a span for each request, under the one that the router names in `traceparent`."""

from swingpool_control.api.tracing import Tracing
from swingpool_control.api.v1alpha1 import EngineType, InferenceClusterSpec
from swingpool_control.names import TRACES_PATH
from swingpool_control.vllm.connector import version_of
from swingpool_control.vllm.versions import TRACES


def arguments(spec: InferenceClusterSpec) -> list[str]:
    """Return the arguments by which a worker exports traces; none if it shall not, or its version cannot."""
    tracing = _exported_to(spec)
    return [] if tracing is None else ["--otlp-traces-endpoint", tracing.endpoint + TRACES_PATH]


def environment(spec: InferenceClusterSpec, *, service: str) -> dict[str, str]:
    """Return the variables that go with the arguments.

    Args:
        spec: what the user wrote.
        service: what the workers are called in traces.
    """
    if _exported_to(spec) is None:
        return {}
    return {"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf", "OTEL_SERVICE_NAME": service}


def _exported_to(spec: InferenceClusterSpec) -> Tracing | None:
    """Simulated workers have no spans to tell of."""
    return spec.tracing if spec.engine.type is EngineType.VLLM and version_of(spec) in TRACES else None
