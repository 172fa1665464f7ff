"""Where traces of requests go, and of how many requests."""

from typing import Annotated

from pydantic import Field

from swingpool_control.api.base import ApiModel
from swingpool_control.api.quantities import DECIMAL_PATTERN, DecimalText
from swingpool_control.api.rules import Rule, matches

ENDPOINT_PATTERN = r"^http://[A-Za-z0-9]([-A-Za-z0-9.]*[A-Za-z0-9])?(:[0-9]{1,5})?$"

OtlpEndpoint = Annotated[
    str,
    Field(max_length=253, pattern=ENDPOINT_PATTERN),
    matches(
        ENDPOINT_PATTERN,
        message="must be http://HOST or http://HOST:PORT without a path, such as "
        "http://otel-collector.observability:4318; a collector in the cluster passes traces on over TLS",
    ),
]
"""A receiver of OTLP over HTTP, without its path."""

Share = Annotated[
    DecimalText,
    matches(DECIMAL_PATTERN, message="must be a share from '0' to '1', such as '0.05'"),
    Rule(
        cel=f"!self.matches(r'{DECIMAL_PATTERN}') || double(self) <= 1.0",
        message="must be a share from '0' to '1', such as '0.05'",
    ),
]
"""A decimal from 0 to 1."""


class Tracing(ApiModel):
    """OpenTelemetry traces of requests: spans of the router's Envoy, its picker, and the workers."""

    endpoint: Annotated[
        OtlpEndpoint,
        Field(
            description="Receiver of OTLP over HTTP: http://HOST:PORT; /v1/traces is added. The port is 80 if none is "
            "given, and mostly 4318."
        ),
    ]
    sampling_ratio: Annotated[
        Share,
        Field(
            description="Share of the requests that are traced, of those that bring no decision with them, as a "
            "traceparent of the client's does."
        ),
    ] = "1"
