"""How Envoy speaks TLS to others: whom it believes, for which name, and what it shows of itself.

Certificates and CAs are no part of its configuration: it follows files that name those of mounted Secrets, so that
renewed ones are taken up without a restart.
"""

import ipaddress
from collections.abc import Sequence

from swingpool_control.resources.envoy_settings import TYPE, Config

PUBLIC_CAS = "/etc/ssl/certs/ca-certificates.crt"
"""In Envoy's own image, and in Swingpool's."""

_SECRET = f"{TYPE}.extensions.transport_sockets.tls.v3.Secret"


def upstream_socket(
    *, server_name: str, trust: Config | None, certificate: Config | None, protocols: Sequence[str] = ()
) -> Config:
    """Return a transport socket that talks to a server of one name alone.

    Args:
        server_name: DNS name or address that the server's certificate must be for.
        trust: what `follow` returned of its CA; None for the public ones.
        certificate: what `follow` returned of Envoy's own certificate; None to show none.
        protocols: what is offered by ALPN; none to offer nothing.
    """
    named = _is_name(server_name)
    kind = "DNS" if named else "IP_ADDRESS"
    sans = {"match_typed_subject_alt_names": [{"san_type": kind, "matcher": {"exact": server_name}}]}
    common: Config = {
        "tls_params": {"tls_minimum_protocol_version": "TLSv1_2", "tls_maximum_protocol_version": "TLSv1_3"}
    }
    if trust is None:
        common["validation_context"] = sans | {"trusted_ca": {"filename": PUBLIC_CAS}}
    else:
        common["combined_validation_context"] = {
            "default_validation_context": sans,
            "validation_context_sds_secret_config": trust,
        }
    if certificate is not None:
        common["tls_certificate_sds_secret_configs"] = [certificate]
    if protocols:
        common["alpn_protocols"] = list(protocols)
    context: Config = {
        "@type": f"{TYPE}.extensions.transport_sockets.tls.v3.UpstreamTlsContext",
        "common_tls_context": common,
    }
    if named:
        context["sni"] = server_name
    return {"name": "envoy.transport_sockets.tls", "typed_config": context}


def follow(name: str, file: str) -> Config:
    """Return where Envoy reads a certificate or a CA: a file that `certificate` or `trust` made."""
    return {"name": name, "sds_config": {"resource_api_version": "V3", "path_config_source": {"path": file}}}


def certificate(name: str, directory: str) -> Config:
    """Return the file that names Envoy's own certificate: that of a mounted Secret, taken up anew when it changes."""
    files = {
        "certificate_chain": {"filename": f"{directory}/tls.crt"},
        "private_key": {"filename": f"{directory}/tls.key"},
        "watched_directory": {"path": directory},
    }
    return {"resources": [{"@type": _SECRET, "name": name, "tls_certificate": files}]}


def trust(name: str, directory: str) -> Config:
    """Return the file that names the CA of others' certificates, likewise."""
    files = {"trusted_ca": {"filename": f"{directory}/ca.crt"}, "watched_directory": {"path": directory}}
    return {"resources": [{"@type": _SECRET, "name": name, "validation_context": files}]}


def _is_name(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return True
    return False
