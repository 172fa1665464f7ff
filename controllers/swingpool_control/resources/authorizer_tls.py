"""TLS from the router to an external authorizer: which Secrets lie where, and what Envoy is told of them."""

from swingpool_control.api.access import AuthorizerTls
from swingpool_control.api.v1alpha1 import InferenceClusterSpec
from swingpool_control.resources import envoy_upstream_tls, worker_tls
from swingpool_control.resources.envoy_authorizer import CERTIFICATE, TRUST
from swingpool_control.resources.envoy_settings import Config
from swingpool_control.resources.metadata import Manifest

TRUST_KEY, CERTIFICATE_KEY = f"{TRUST}.json", f"{CERTIFICATE}.json"
"""Files that name what is mounted, in the router's ConfigMap."""
_DIRECTORY = "/etc/swingpool"


def volumes(spec: InferenceClusterSpec) -> list[Manifest]:
    """Return the router's volumes for it."""
    return [worker_tls.secret_volume(name, secret) for name, secret in _secrets(spec).items()]


def mounts(spec: InferenceClusterSpec) -> list[Manifest]:
    """Return where Envoy has them."""
    return [{"name": name, "mountPath": f"{_DIRECTORY}/{name}", "readOnly": True} for name in _secrets(spec)]


def texts(spec: InferenceClusterSpec) -> dict[str, Config]:
    """Return the files of the router's ConfigMap that name them, by key."""
    found = {}
    if TRUST in _secrets(spec):
        found[TRUST_KEY] = envoy_upstream_tls.trust(TRUST, f"{_DIRECTORY}/{TRUST}")
    if CERTIFICATE in _secrets(spec):
        found[CERTIFICATE_KEY] = envoy_upstream_tls.certificate(CERTIFICATE, f"{_DIRECTORY}/{CERTIFICATE}")
    return found


def files(spec: InferenceClusterSpec, directory: str) -> dict[str, str]:
    """Return where Envoy has those files, by what they name.

    Args:
        spec: what the user wrote.
        directory: where the ConfigMap is mounted.
    """
    keys = {TRUST: TRUST_KEY, CERTIFICATE: CERTIFICATE_KEY}
    return {name: f"{directory}/{keys[name]}" for name in _secrets(spec)}


def _secrets(spec: InferenceClusterSpec) -> dict[str, str]:
    """Return the mounted Secrets, by what they are for."""
    authorizer = spec.router.built_in.authorizer
    asked = (authorizer.tls if authorizer else None) or AuthorizerTls()
    found = {TRUST: asked.ca_secret_name, CERTIFICATE: asked.client_secret_name}
    return {name: secret for name, secret in found.items() if secret}
