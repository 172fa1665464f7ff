"""How a worker is told to speak TLS, and to take those alone who show it a certificate.

`--ssl-cert-reqs` takes the numbers of Python's `ssl.VerifyMode`; 2 is `CERT_REQUIRED`.
"""

from swingpool_control.api.access import WorkerTls
from swingpool_control.api.v1alpha1 import InferenceClusterSpec, RouterType

DIRECTORY = "/etc/swingpool/worker-tls"
"""In a worker: its own certificate, and the CA of those who may speak to it."""


def wanted(spec: InferenceClusterSpec) -> WorkerTls | None:
    """Return what the spec wants; an external router has its own ways to workers."""
    return spec.router.built_in.worker_tls if spec.router.type is RouterType.BUILT_IN else None


def arguments(spec: InferenceClusterSpec) -> list[str]:
    """Return the arguments; none for plain HTTP."""
    if wanted(spec) is None:
        return []
    return [
        *("--ssl-certfile", f"{DIRECTORY}/tls.crt", "--ssl-keyfile", f"{DIRECTORY}/tls.key"),
        *("--ssl-ca-certs", f"{DIRECTORY}/ca.crt", "--ssl-cert-reqs", "2", "--enable-ssl-refresh"),
    ]
