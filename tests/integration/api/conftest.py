"""The control plane with InferenceClusters installed."""

import pytest

from e2e.cluster.controlplane import ControlPlane
from tests.support import inference_clusters


@pytest.fixture(scope="session")
def plane(control_plane: ControlPlane) -> ControlPlane:
    """The control plane that serves InferenceClusters, as the committed definition describes them."""
    inference_clusters.install(control_plane)
    return control_plane
