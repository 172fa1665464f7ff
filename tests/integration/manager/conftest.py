"""Managers in namespaces of their own on the shared control plane."""

from collections.abc import AsyncIterator, Iterator
from typing import Any, cast

import pytest

from e2e.cluster.controlplane import ControlPlane
from swingpool.kube import Kube
from swingpool.manager.lease import Leadership
from tests.support import inference_clusters
from tests.support.manager_stand import ManagerProcess, Place, manager, place


@pytest.fixture(scope="module")
def here(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A namespace with the manager's ServiceAccount."""
    with place(plane, tmp_path_factory.mktemp("manager")) as made:
        yield made


@pytest.fixture(scope="module")
def running(here: Place) -> Iterator[ManagerProcess]:
    """A manager that these tests share."""
    with manager(here, "--resync-period=3", "--sizing-period=2") as one:
        yield one


@pytest.fixture
async def kube(here: Place) -> AsyncIterator[Kube]:
    """A client of the API server that may do everything."""
    async with Kube.load(here.plane.kubeconfig) as client:
        yield client


class _Leading:
    def check(self) -> None:
        """Refuse nothing."""


@pytest.fixture
def leading() -> Leadership:
    """A lease that is always held."""
    return cast(Leadership, _Leading())


@pytest.fixture
def clusters(here: Place) -> Iterator[Any]:
    """Make InferenceClusters; they are deleted in the end."""
    made: list[str] = []

    def make(name: str, *pools: dict[str, Any], **spec: Any) -> dict[str, Any]:
        made.append(name)
        resource = inference_clusters.smallest()
        resource["metadata"]["name"] = name
        resource["spec"] |= {"engine": {"type": "Simulated"}} | spec
        if pools:
            resource["spec"]["pools"] = list(pools)
        return here.create("InferenceCluster", resource)

    yield make
    for name in made:
        if here.get("InferenceCluster", name):
            here.delete("InferenceCluster", name)
