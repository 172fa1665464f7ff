"""An external authorizer: Envoy asks it about each request before anyone else sees it, and goes by its word.

Envoy does that itself, so it holds while the picker is away. The authorizer sees headers, never a body, and can set
whose a request is and how urgent; nothing else. What it was shown as credentials is taken off before workers see it.
"""

from swingpool_control import names
from swingpool_control.resources.envoy_settings import (
    TYPE,
    AuthorizerService,
    AuthorizerTls,
    Config,
    EnvoySettings,
    address,
    http2,
    seconds,
    unlimited,
)
from swingpool_control.resources.envoy_upstream_tls import follow, upstream_socket

CLUSTER = "authorizer"
CERTIFICATE, TRUST = "authorizer-client", "authorizer-ca"
"""What Envoy shows it, and by what it knows it."""
DENIED, UNANSWERED = "ext_authz_denied", "ext_authz_error"
"""Envoy's words for why it refused a request."""

_SHOWN = ("x-forwarded-for", "x-forwarded-proto", names.HEADER_REQUEST_ID, names.HEADER_CLASS)
"""Beside the method, the path, the host and the credentials."""
_TOLD = (names.HEADER_TENANT, names.HEADER_CLASS)
"""What its word on a request may set."""
_ANSWERED = ("content-type", "www-authenticate", "retry-after", "location")
"""What clients get of its refusal, beside status and body."""


def credentials(service: AuthorizerService) -> tuple[str, ...]:
    """Return the headers that the authorizer sees and workers do not: an HTTP service sees the first one always."""
    return tuple(dict.fromkeys(("authorization", *service.credentials)))


def authorizer_filters(settings: EnvoySettings) -> list[Config]:
    """Return the HTTP filters; none without an authorizer."""
    service = settings.authorizer
    if service is None:
        return []
    return [
        {"name": "envoy.filters.http.ext_authz", "typed_config": _ext_authz(service)},
        {
            "name": "swingpool.credentials",
            "typed_config": {
                "@type": f"{TYPE}.extensions.filters.http.header_mutation.v3.HeaderMutation",
                "mutations": {"request_mutations": [{"remove": name} for name in credentials(service)]},
            },
        },
    ]


def authorizer_clusters(settings: EnvoySettings) -> list[Config]:
    """Return the cluster that it is; none without one."""
    service = settings.authorizer
    if service is None:
        return []
    return [
        {
            "name": CLUSTER,
            "type": "STRICT_DNS",
            "connect_timeout": seconds(min(1.0, service.timeout_s)),
            "circuit_breakers": unlimited(),
            "load_assignment": {
                "cluster_name": CLUSTER,
                "endpoints": [{"lb_endpoints": [{"endpoint": {"address": address(service.host, service.port)}}]}],
            },
        }
        | (http2() if service.grpc else {})
        | (_secure(service.tls, grpc=service.grpc) if service.tls else {})
    ]


def _secure(tls: AuthorizerTls, *, grpc: bool) -> Config:
    socket = upstream_socket(
        server_name=tls.server_name,
        trust=follow(TRUST, tls.trust_file) if tls.trust_file else None,
        certificate=follow(CERTIFICATE, tls.certificate_file) if tls.certificate_file else None,
        protocols=("h2",) if grpc else (),
    )
    return {"transport_socket": socket}


def _ext_authz(service: AuthorizerService) -> Config:
    return {
        "@type": f"{TYPE}.extensions.filters.http.ext_authz.v3.ExtAuthz",
        "transport_api_version": "V3",
        **_service(service),
        "failure_mode_allow": service.allows_unanswered,
        "status_on_error": {"code": 503},
        "allowed_headers": _exactly(*_SHOWN, *credentials(service)),
        # Whatever else it sets would reach workers, or lead a request where nobody looks.
        "decoder_header_mutation_rules": {
            "disallow_all": True,
            "allow_expression": {"regex": "|".join(_TOLD)},
        },
    }


def _service(service: AuthorizerService) -> Config:
    timeout = seconds(service.timeout_s)
    if service.grpc:
        return {"grpc_service": {"envoy_grpc": {"cluster_name": CLUSTER}, "timeout": timeout}}
    scheme = "https" if service.tls else "http"
    uri = f"{scheme}://{service.host}:{service.port}"
    return {
        "http_service": {
            "server_uri": {"uri": uri, "cluster": CLUSTER, "timeout": timeout},
            "path_prefix": service.path,
            "authorization_response": {
                "allowed_upstream_headers": _exactly(*_TOLD),
                "allowed_client_headers": _exactly(*_ANSWERED),
            },
        }
    }


def _exactly(*headers: str) -> Config:
    return {"patterns": [{"exact": header, "ignore_case": True} for header in headers]}
