"""The kinds that Swingpool reads or writes.

They are lightkube classes of our own making, outside its registry: plain dicts in, plain dicts out, and no clash with
the typed models that lightkube registers for the same kinds.
"""

from dataclasses import dataclass

from lightkube.core.resource import ApiInfo, ResourceDef
from lightkube.generic_resource import GenericNamespacedResource, GenericNamespacedStatus

from swingpool_control import names
from swingpool_control.resources import inference_objective, inference_pool

_VERBS = ["delete", "get", "global_list", "global_watch", "list", "patch", "post", "put", "watch"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One namespaced kind."""

    group: str
    version: str
    kind: str
    plural: str

    @property
    def api_version(self) -> str:
        """`apiVersion` of its objects."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def resource(self) -> type[GenericNamespacedResource]:
        """The class by which lightkube calls it."""
        return _RESOURCES[self]

    @property
    def status(self) -> type[GenericNamespacedStatus]:
        """The class by which lightkube calls its /status."""
        return _STATUSES[self]


POD = Kind(group="", version="v1", kind="Pod", plural="pods")
SERVICE = Kind(group="", version="v1", kind="Service", plural="services")
CONFIG_MAP = Kind(group="", version="v1", kind="ConfigMap", plural="configmaps")
SERVICE_ACCOUNT = Kind(group="", version="v1", kind="ServiceAccount", plural="serviceaccounts")
EVENT = Kind(group="", version="v1", kind="Event", plural="events")
DEPLOYMENT = Kind(group="apps", version="v1", kind="Deployment", plural="deployments")
ROLE = Kind(group="rbac.authorization.k8s.io", version="v1", kind="Role", plural="roles")
ROLE_BINDING = Kind(group="rbac.authorization.k8s.io", version="v1", kind="RoleBinding", plural="rolebindings")
POD_DISRUPTION_BUDGET = Kind(group="policy", version="v1", kind="PodDisruptionBudget", plural="poddisruptionbudgets")
LEASE = Kind(group="coordination.k8s.io", version="v1", kind="Lease", plural="leases")
JOB = Kind(group="batch", version="v1", kind="Job", plural="jobs")
INFERENCE_POOL = Kind(
    group=inference_pool.GROUP, version=inference_pool.VERSION, kind=inference_pool.KIND, plural=inference_pool.PLURAL
)
"""Its CRD may be missing."""
INFERENCE_OBJECTIVE = Kind(
    group=inference_objective.GROUP,
    version=inference_objective.VERSION,
    kind=inference_objective.KIND,
    plural=inference_objective.PLURAL,
)
"""So may this one's."""
INFERENCE_CLUSTER = Kind(group=names.GROUP, version=names.VERSION, kind=names.KIND, plural=names.PLURAL)

ALL = (
    POD,
    SERVICE,
    CONFIG_MAP,
    SERVICE_ACCOUNT,
    EVENT,
    DEPLOYMENT,
    ROLE,
    ROLE_BINDING,
    POD_DISRUPTION_BUDGET,
    LEASE,
    JOB,
    INFERENCE_POOL,
    INFERENCE_OBJECTIVE,
    INFERENCE_CLUSTER,
)


def _resource_class(kind: Kind) -> type[GenericNamespacedResource]:
    definition = ResourceDef(kind.group, kind.version, kind.kind)
    info = ApiInfo(resource=definition, plural=kind.plural, verbs=_VERBS)
    return type(kind.kind, (GenericNamespacedResource,), {"_api_info": info})


def _status_class(kind: Kind) -> type[GenericNamespacedStatus]:
    definition = ResourceDef(kind.group, kind.version, kind.kind)
    info = ApiInfo(
        resource=definition, parent=definition, plural=kind.plural, verbs=["get", "patch", "put"], action="status"
    )
    return type(f"{kind.kind}Status", (GenericNamespacedStatus,), {"_api_info": info})


_RESOURCES = {kind: _resource_class(kind) for kind in ALL}
_STATUSES = {kind: _status_class(kind) for kind in ALL}
_BY_NAME = {(kind.api_version, kind.kind): kind for kind in ALL}


def kind_of(obj: dict[str, object]) -> Kind:
    """Return the kind of an object.

    Raises:
        KeyError: Swingpool does not handle objects of this kind.
    """
    return _BY_NAME[(str(obj.get("apiVersion")), str(obj.get("kind")))]
