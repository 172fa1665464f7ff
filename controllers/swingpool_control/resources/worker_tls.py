"""Mutual TLS between the built-in router and workers: which Secrets lie where."""

from swingpool_control.api.v1alpha1 import InferenceClusterSpec
from swingpool_control.resources.metadata import Manifest
from swingpool_control.vllm import tls

ROUTER_DIRECTORY = "/etc/swingpool/worker-client"
"""In the router: what workers are shown, and the CA of theirs."""
WORKER_VOLUME, ROUTER_VOLUME = "worker-tls", "worker-client"


def worker_volumes(spec: InferenceClusterSpec) -> list[Manifest]:
    """Return the volumes that a worker's pod has for it."""
    asked = tls.wanted(spec)
    return [] if asked is None else [secret_volume(WORKER_VOLUME, asked.secret_name)]


def worker_mounts(spec: InferenceClusterSpec) -> list[Manifest]:
    """Return where a worker's container has them."""
    if tls.wanted(spec) is None:
        return []
    return [{"name": WORKER_VOLUME, "mountPath": tls.DIRECTORY, "readOnly": True}]


def router_mounts(spec: InferenceClusterSpec) -> list[Manifest]:
    """Return where Envoy and the picker have the router's own."""
    if tls.wanted(spec) is None:
        return []
    return [{"name": ROUTER_VOLUME, "mountPath": ROUTER_DIRECTORY, "readOnly": True}]


def secret_volume(name: str, secret: str) -> Manifest:
    """Return a volume of a Secret that the pod's group may read."""
    return {"name": name, "secret": {"secretName": secret, "defaultMode": 0o440}}
