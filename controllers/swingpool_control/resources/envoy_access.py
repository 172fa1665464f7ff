"""Who may send requests through Envoy: certificates, API keys, an authorizer, and tenants' limits.

All of it is Envoy's own work, so that it holds while the picker is away. Keys and certificates are no part of the
configuration, which anyone may read who may read ConfigMaps: Envoy follows files that are made of mounted Secrets.
"""

from collections.abc import Mapping

from swingpool_control import names
from swingpool_control.resources.envoy_authorizer import authorizer_filters
from swingpool_control.resources.envoy_settings import TYPE, Config, EnvoySettings, TenantLimit, seconds

API_KEYS_FILTER = "swingpool.api_keys"
CERTIFICATE = "router"
MOST_TENANTS = 10_000
"""Tenants whose requests are counted at a time; the one that was silent longest is forgotten first."""

LEAST_FILL_S = 0.05
"""Envoy fills no bucket more often."""

_KEY_AUTH = f"{TYPE}.extensions.filters.http.api_key_auth.v3.ApiKeyAuth"


def access_filters(settings: EnvoySettings) -> list[Config]:
    """Return the HTTP filters that a request must pass before anything is decided about it."""
    filters = [_api_keys_filter(settings.api_keys_file)] if settings.api_keys_file else []
    filters += authorizer_filters(settings)
    if settings.tenant_limit:
        filters.append(_tenant_limit_filter(settings.tenant_limit))
    return filters


def tls_socket(settings: EnvoySettings) -> Config:
    """Return what a listener's filter chain needs for HTTPS; nothing for HTTP."""
    if not settings.tls_sds_file:
        return {}
    source = {"resource_api_version": "V3", "path_config_source": {"path": settings.tls_sds_file}}
    return {
        "transport_socket": {
            "name": "envoy.transport_sockets.tls",
            "typed_config": {
                "@type": f"{TYPE}.extensions.transport_sockets.tls.v3.DownstreamTlsContext",
                "common_tls_context": {
                    "tls_params": {"tls_minimum_protocol_version": "TLSv1_2"},
                    "alpn_protocols": ["h2", "http/1.1"],
                    "tls_certificate_sds_secret_configs": [{"name": CERTIFICATE, "sds_config": source}],
                },
            },
        }
    }


def certificate(directory: str) -> Config:
    """Return the file that names the certificate: that of a mounted Secret, taken up anew when it changes."""
    return {
        "resources": [
            {
                "@type": f"{TYPE}.extensions.transport_sockets.tls.v3.Secret",
                "name": CERTIFICATE,
                "tls_certificate": {
                    "certificate_chain": {"filename": f"{directory}/tls.crt"},
                    "private_key": {"filename": f"{directory}/tls.key"},
                    "watched_directory": {"path": directory},
                },
            }
        ]
    }


def api_keys(clients: Mapping[str, str]) -> Config:
    """Return the file that holds the keys.

    Args:
        clients: name of a client to its key. No two keys may be the same: Envoy would refuse all of them.
    """
    return {
        "resources": [
            {
                "@type": f"{TYPE}.config.core.v3.TypedExtensionConfig",
                "name": API_KEYS_FILTER,
                "typed_config": {
                    "@type": _KEY_AUTH,
                    "credentials": [{"client": client, "key": key} for client, key in clients.items()],
                    "key_sources": [{"header": "Authorization"}],
                    # Whoever the key belongs to is the tenant, and no worker sees the key.
                    "forwarding": {"header": names.HEADER_TENANT, "hide_credentials": True},
                },
            }
        ]
    }


def _api_keys_filter(path: str) -> Config:
    directory = path.rpartition("/")[0] or "."
    return {
        "name": API_KEYS_FILTER,
        "config_discovery": {
            "config_source": {
                "resource_api_version": "V3",
                "path_config_source": {"path": path, "watched_directory": {"path": directory}},
            },
            "type_urls": [_KEY_AUTH],
        },
    }


def _tenant_limit_filter(limit: TenantLimit) -> Config:
    bucket = _bucket(limit)
    return {
        "name": "envoy.filters.http.local_ratelimit",
        "typed_config": {
            "@type": f"{TYPE}.extensions.filters.http.local_ratelimit.v3.LocalRateLimit",
            "stat_prefix": "tenants",
            "token_bucket": bucket,  # of those who name no tenant
            "filter_enabled": _always(),
            "filter_enforced": _always(),
            "always_consume_default_token_bucket": False,
            "max_dynamic_descriptors": MOST_TENANTS,
            "descriptors": [{"entries": [{"key": "tenant"}], "token_bucket": bucket}],
            "rate_limits": [
                {
                    "actions": [
                        {"request_headers": {"header_name": names.HEADER_TENANT, "descriptor_key": "tenant"}},
                    ]
                }
            ],
            "response_headers_to_add": [
                {"header": {"key": "retry-after", "value": str(max(1, round(1 / limit.requests_per_s)))}}
            ],
        },
    }


def _bucket(limit: TenantLimit) -> Config:
    """Return a bucket of requests: whole ones, as often as Envoy fills at most."""
    at_a_time = max(1, round(limit.requests_per_s * LEAST_FILL_S + 0.5))
    return {
        "max_tokens": max(limit.burst, at_a_time),
        "tokens_per_fill": at_a_time,
        "fill_interval": seconds(at_a_time / limit.requests_per_s),
    }


def _always() -> Config:
    return {"default_value": {"numerator": 100, "denominator": "HUNDRED"}}
