"""The address that clients use, and whether it answers."""

from e2e.system.http import get_json
from e2e.system.install import System
from e2e.system.waiting import wait_for
from swingpool_control import names


def url(system: System, namespace: str, cluster: str) -> str:
    """Return the router's address."""
    return system.cluster.service_url(namespace, names.router(cluster), 80)


def wait_serving(system: System, namespace: str, cluster: str, *, limit_s: float = 30) -> str:
    """Wait until the router lists its model, and return its address."""
    address = url(system, namespace, cluster)

    def models() -> list[str]:
        return [item["id"] for item in get_json(f"{address}/v1/models")["data"]]

    wait_for(f"{address}/v1/models to list a model", models, limit_s=limit_s)
    return address
