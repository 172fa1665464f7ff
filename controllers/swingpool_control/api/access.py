"""Who may use the built-in router, how much of it, and over what."""

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from swingpool_control.api.base import ApiModel
from swingpool_control.api.quantities import (
    DECIMAL_PATTERN,
    DecimalText,
    DnsName,
    Duration,
    ObjectName,
    PositiveDuration,
)
from swingpool_control.api.rules import LIST_SET, Rule, matches, rules

_HOST = r"[A-Za-z0-9]([-A-Za-z0-9.]*[A-Za-z0-9])?"
_PORT = r":([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])"
AUTHORIZER_PATTERN = rf"^(grpcs?://{_HOST}{_PORT}|https?://{_HOST}({_PORT})?(/[-A-Za-z0-9._~/]*)?)$"
HEADER_PATTERN = r"^[a-z0-9][-a-z0-9_]*$"

AuthorizerEndpoint = Annotated[
    str,
    Field(max_length=253, pattern=AUTHORIZER_PATTERN),
    matches(
        AUTHORIZER_PATTERN,
        message="must be grpc://HOST:PORT, http://HOST:PORT or http://HOST:PORT/PATH, such as "
        "grpc://authorizer.security:9191; over TLS grpcs and https",
    ),
]
"""Where an authorizer is asked."""

_ENGINES_NEED = ("content-type", "content-length", "transfer-encoding", "host", "x-request-id", "traceparent")

HeaderName = Annotated[
    str,
    Field(min_length=1, max_length=64, pattern=HEADER_PATTERN),
    matches(HEADER_PATTERN, message="must be a header's name in lower case, such as x-api-key"),
    Rule(
        cel=f"!(self in {list(_ENGINES_NEED)}) && !self.startsWith('x-gateway-')",
        message="is no credential, and workers or the router need it: remove it",
        reason="FieldValueForbidden",
    ),
]
"""Name of a header that holds a credential."""

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


class KVEvents(ApiModel):
    """Workers tell routers what their KV caches hold."""

    tokenize_timeout: Annotated[
        Duration,
        Field(
            description="How long a long prompt waits for a worker to say its tokens, by which it is looked up; "
            "without them what lies where is estimated. 0s asks no worker: then only prompts that come as token ids "
            "are looked up."
        ),
    ] = "100ms"


class ApiKeys(ApiModel):
    """Requests need a key: `Authorization: Bearer KEY`."""

    secret_name: Annotated[
        ObjectName,
        Field(
            description="Secret in this namespace: each entry's name is a client, its value the client's key. The "
            "client is the request's tenant then, whatever the request says. Changes are taken up in a minute or two."
        ),
    ]


class FailureMode(StrEnum):
    """What becomes of requests while whoever should be asked about them does not answer."""

    DENY = "Deny"
    ALLOW = "Allow"


class AuthorizerTls(ApiModel):
    """By what the authorizer is known over TLS, and the router to it."""

    ca_secret_name: Annotated[
        ObjectName | None,
        Field(
            description="Secret in this namespace with ca.crt, the CA of its certificate; a renewed one is taken up "
            "without a restart. Default: the public CAs that Envoy's image holds."
        ),
    ] = None
    server_name: Annotated[
        DnsName | None, Field(description="DNS name that its certificate must be for. Default: the endpoint's host.")
    ] = None
    client_secret_name: Annotated[
        ObjectName | None,
        Field(
            description="Secret in this namespace with tls.crt and tls.key, which the router shows, taken up likewise. "
            "Default: it shows none."
        ),
    ] = None


class Authorizer(ApiModel):
    """A service that says of each request whether it may pass, and whose it is: Envoy's external authorization."""

    model_config = rules(
        Rule(
            cel="!has(self.tls) || self.endpoint.startsWith('grpcs://') || self.endpoint.startsWith('https://')",
            message="tls is for an endpoint that begins with grpcs:// or https://: write it so, or remove tls",
            field=".tls",
            reason="FieldValueForbidden",
        ),
    )

    endpoint: Annotated[
        AuthorizerEndpoint,
        Field(
            description="Where it is asked: grpc://HOST:PORT (envoy.service.auth.v3.Authorization), or "
            "http://HOST:PORT/PATH, where each request is asked about under its own method and its own path behind "
            "that one; status 200 lets it pass. With grpcs and https over TLS. It sees no body."
        ),
    ]
    tls: Annotated[
        AuthorizerTls | None,
        Field(
            description="How the two know each other over TLS. Default: its certificate is a public CA's, for the "
            "endpoint's host, and the router shows none."
        ),
    ] = None
    timeout: Annotated[PositiveDuration, Field(description="How long it may take to answer.")] = "1s"
    failure_mode: Annotated[
        FailureMode,
        Field(
            description="While it does not answer in time, or with a 5xx. Deny: requests get status 503. Allow: they "
            "pass, as requests of no tenant."
        ),
    ] = FailureMode.DENY
    credentials: Annotated[
        tuple[HeaderName, ...],
        Field(
            min_length=1,
            max_length=8,
            description="Headers that say who sends a request, in lower case: the authorizer sees them, and no worker.",
            json_schema_extra=LIST_SET,
        ),
    ] = ("authorization",)


class WorkerTls(ApiModel):
    """Mutual TLS between router and workers: each shows a certificate, and speaks to nobody without one of the CA."""

    secret_name: Annotated[
        ObjectName,
        Field(
            description="Secret in this namespace with what workers show: tls.crt, tls.key, and ca.crt, the CA of "
            "those who may speak to them. The certificate is for serverName, and for both uses, server and client, "
            "since a worker's probes speak to it as a client does."
        ),
    ]
    client_secret_name: Annotated[
        ObjectName,
        Field(
            description="Secret with what the router shows: tls.crt, tls.key, and ca.crt, the CA of the workers. It "
            "may be the same."
        ),
    ]
    server_name: Annotated[
        DnsName, Field(description="DNS name that workers' certificates are for; it need not resolve.")
    ] = "worker"


class RateLimit(ApiModel):
    """Most requests of one tenant; more are answered with status 429."""

    requests_per_second: Annotated[
        RequestRate, Field(description="Requests per second of one tenant over all router pods, such as '5' or '0.2'.")
    ]
    burst: Annotated[
        int, Field(ge=1, le=1_000_000, description="Requests that a tenant may send at once after it was silent.")
    ] = 10
