"""How Envoy speaks to workers over TLS: with a certificate of its own, to those alone that have one of the same CA.

Which worker speaks TLS stands in Envoy's list of them, so that both kinds may be there while workers are replaced.
"""

from typing import Final

from swingpool_control.resources import envoy_upstream_tls
from swingpool_control.resources.envoy_settings import Config, WorkerTlsFiles
from swingpool_control.resources.envoy_upstream_tls import follow, upstream_socket

CERTIFICATE, TRUST = "worker-client", "worker-ca"

OF_TLS: Final[Config] = {"envoy.transport_socket_match": {"tls": True}}
"""Metadata of an endpoint that speaks TLS."""


def worker_sockets(files: WorkerTlsFiles | None) -> Config:
    """Return what the workers' cluster needs for those that speak TLS; nothing without certificates."""
    if files is None:
        return {}
    socket = upstream_socket(
        server_name=files.server_name,  # a worker's address stands in no certificate; all of them are for one name
        trust=follow(TRUST, files.trust_file),
        certificate=follow(CERTIFICATE, files.certificate_file),
    )
    return {"transport_socket_matches": [{"name": "tls", "match": {"tls": True}, "transport_socket": socket}]}


def certificate(directory: str) -> Config:
    """Return the file that names what Envoy shows to workers."""
    return envoy_upstream_tls.certificate(CERTIFICATE, directory)


def trust(directory: str) -> Config:
    """Return the file that names the CA of workers' certificates."""
    return envoy_upstream_tls.trust(TRUST, directory)
