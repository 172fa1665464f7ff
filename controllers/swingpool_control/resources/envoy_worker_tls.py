"""How Envoy speaks to workers over TLS: with a certificate of its own, to those alone that have one of the same CA.

Which worker speaks TLS stands in Envoy's list of them, so that both kinds may be there while workers are replaced.
"""

from typing import Final

from swingpool_control.resources.envoy_settings import TYPE, Config, WorkerTlsFiles

CERTIFICATE, TRUST = "worker-client", "worker-ca"

OF_TLS: Final[Config] = {"envoy.transport_socket_match": {"tls": True}}
"""Metadata of an endpoint that speaks TLS."""

_SECRET = f"{TYPE}.extensions.transport_sockets.tls.v3.Secret"


def worker_sockets(files: WorkerTlsFiles | None) -> Config:
    """Return what the workers' cluster needs for those that speak TLS; nothing without certificates."""
    if files is None:
        return {}
    trust = {
        # A worker's address stands in no certificate; all of them are for one name.
        "default_validation_context": {
            "match_typed_subject_alt_names": [{"san_type": "DNS", "matcher": {"exact": files.server_name}}]
        },
        "validation_context_sds_secret_config": _sds(TRUST, files.trust_file),
    }
    context = {
        "@type": f"{TYPE}.extensions.transport_sockets.tls.v3.UpstreamTlsContext",
        "sni": files.server_name,
        "common_tls_context": {
            "tls_params": {"tls_minimum_protocol_version": "TLSv1_2"},
            "tls_certificate_sds_secret_configs": [_sds(CERTIFICATE, files.certificate_file)],
            "combined_validation_context": trust,
        },
    }
    socket = {"name": "envoy.transport_sockets.tls", "typed_config": context}
    return {"transport_socket_matches": [{"name": "tls", "match": {"tls": True}, "transport_socket": socket}]}


def certificate(directory: str) -> Config:
    """Return the file that names Envoy's own certificate: that of a mounted Secret, taken up anew when it changes."""
    files = {
        "certificate_chain": {"filename": f"{directory}/tls.crt"},
        "private_key": {"filename": f"{directory}/tls.key"},
        "watched_directory": {"path": directory},
    }
    return {"resources": [{"@type": _SECRET, "name": CERTIFICATE, "tls_certificate": files}]}


def trust(directory: str) -> Config:
    """Return the file that names the CA of workers' certificates."""
    files = {"trusted_ca": {"filename": f"{directory}/ca.crt"}, "watched_directory": {"path": directory}}
    return {"resources": [{"@type": _SECRET, "name": TRUST, "validation_context": files}]}


def _sds(name: str, file: str) -> Config:
    return {"name": name, "sds_config": {"resource_api_version": "V3", "path_config_source": {"path": file}}}
