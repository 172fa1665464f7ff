"""What all workers of a cluster share: a headless Service and a ServiceAccount without rights."""

from swingpool_control import names
from swingpool_control.resources.metadata import Manifest, Owner


def children(owner: Owner) -> tuple[Manifest, ...]:
    """Return the headless Service, by which monitoring finds every worker, and the workers' ServiceAccount."""
    labels = owner.labels(component=names.COMPONENT_WORKER)
    account = owner.child(
        api_version="v1", kind="ServiceAccount", name=names.worker_service_account(owner.name), labels=labels
    ) | {"automountServiceAccountToken": False}
    service = owner.child(api_version="v1", kind="Service", name=names.workers_service(owner.name), labels=labels) | {
        "spec": {
            "clusterIP": "None",
            "selector": owner.selector(component=names.COMPONENT_WORKER),
            "ports": [{"name": "http", "port": names.PORT_WORKER, "targetPort": "http", "protocol": "TCP"}],
        }
    }
    return account, service
