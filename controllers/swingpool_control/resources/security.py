"""Security contexts that the `restricted` Pod Security Standard asks for."""

from swingpool_control.resources.metadata import Manifest
from swingpool_control.resources.settings import RenderSettings


def pod_security_context(settings: RenderSettings) -> Manifest:
    """Return the context of a pod: never root, the runtime's seccomp profile, volumes of the pod's group."""
    context: Manifest = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    if settings.run_as_user is not None:
        context |= {
            "runAsUser": settings.run_as_user,
            "runAsGroup": settings.run_as_user,
            "fsGroup": settings.run_as_user,
            "fsGroupChangePolicy": "OnRootMismatch",
        }
    return context


def container_security_context(*, read_only_root: bool) -> Manifest:
    """Return the context of a container: no privileges, none to be gained.

    Args:
        read_only_root: whether all that it writes lies on volumes.
    """
    context: Manifest = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    if read_only_root:
        context["readOnlyRootFilesystem"] = True
    return context
