"""What the manager does to the API server, verb by verb. The chart's RBAC grants exactly this; a test compares them."""

from dataclasses import dataclass

from swingpool_control import names
from swingpool_control.resources import inference_objective, inference_pool


@dataclass(frozen=True, slots=True)
class Permission:
    """Verbs on a resource of an API group, in every namespace that the manager works in."""

    group: str
    resource: str
    verbs: tuple[str, ...]


_READ = ("get", "list", "watch")
_OWN = (*_READ, "create", "patch", "delete")
"""Server-side apply needs `patch`, and `create` where the object does not exist yet."""

PERMISSIONS: tuple[Permission, ...] = (
    Permission(names.GROUP, names.PLURAL, _READ),
    Permission(names.GROUP, f"{names.PLURAL}/status", ("patch",)),
    Permission("apps", "deployments", _OWN),
    Permission("", "services", _OWN),
    Permission("", "configmaps", _OWN),
    Permission("", "serviceaccounts", _OWN),
    Permission("rbac.authorization.k8s.io", "roles", _OWN),
    Permission("rbac.authorization.k8s.io", "rolebindings", _OWN),
    Permission("policy", "poddisruptionbudgets", _OWN),
    Permission(inference_pool.GROUP, inference_pool.PLURAL, ("get", "create", "patch", "delete")),
    # What the manager grants to pickers, which it may do only because it may do it itself: get, list and watch.
    Permission(inference_objective.GROUP, inference_objective.PLURAL, _READ),
    Permission("", "pods", (*_READ, "patch")),
    Permission("", "events", ("create",)),
)
"""Besides, ownerReferences with `blockOwnerDeletion` need `update` on the owner's finalizers where the
OwnerReferencesPermissionEnforcement admission plugin runs (OpenShift)."""

FINALIZERS = Permission(names.GROUP, f"{names.PLURAL}/finalizers", ("update",))

LEASE_PERMISSIONS: tuple[Permission, ...] = (Permission("coordination.k8s.io", "leases", ("get", "create", "update")),)
"""In the Lease's namespace only."""
