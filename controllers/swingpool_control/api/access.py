"""Who may use the built-in router, how much of it, and over what."""

from typing import Annotated

from pydantic import Field

from swingpool_control.api.base import ApiModel
from swingpool_control.api.quantities import DECIMAL_PATTERN, DecimalText, ObjectName
from swingpool_control.api.rules import Rule, matches

RequestRate = Annotated[
    DecimalText,
    matches(DECIMAL_PATTERN, message="must be a number of requests per second such as '5' or '0.2'"),
    Rule(
        cel=f"!self.matches(r'{DECIMAL_PATTERN}') || (double(self) >= 0.001 && double(self) <= 100000.0)",
        message="must lie between 0.001 and 100000; leave rateLimit out for no limit",
    ),
]
"""Requests per second as a decimal."""


class Tls(ApiModel):
    """A certificate and its key."""

    secret_name: Annotated[
        ObjectName,
        Field(
            description="Secret of type kubernetes.io/tls in this namespace, with tls.crt and tls.key, as cert-manager "
            "writes it. A renewed certificate is taken up without a restart."
        ),
    ]


class InferencePool(ApiModel):
    """An InferencePool of the Gateway API, by which gateways of others ask this cluster's picker."""

    certificate: Annotated[
        Tls,
        Field(
            description="What the picker shows to gateways, which speak TLS to it. Most do not check it, so "
            "one that is signed by itself will do."
        ),
    ]


class ApiKeys(ApiModel):
    """Requests need a key: `Authorization: Bearer KEY`."""

    secret_name: Annotated[
        ObjectName,
        Field(
            description="Secret in this namespace: each entry's name is a client, its value the client's key. The "
            "client is the request's tenant then, whatever the request says. Changes are taken up in a minute or two."
        ),
    ]


class RateLimit(ApiModel):
    """Most requests of one tenant; more are answered with status 429."""

    requests_per_second: Annotated[
        RequestRate, Field(description="Requests per second of one tenant over all router pods, such as '5' or '0.2'.")
    ]
    burst: Annotated[
        int, Field(ge=1, le=1_000_000, description="Requests that a tenant may send at once after it was silent.")
    ] = 10
