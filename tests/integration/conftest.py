"""The real control plane that integration tests share: one for each test session, on loopback, without nodes."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.cluster.binaries import CONTROL_PLANE, binaries
from e2e.cluster.controlplane import ControlPlane, on_loopback
from tests.support import inference_clusters
from tests.support.helm import Helm


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> None:
    """Build what the tests need before the first of them, whose time limit is far shorter than a build."""
    here = [item for item in session.items if item.path.is_relative_to(Path(__file__).parent)]
    if not here or session.config.option.collectonly:
        return
    helm = ("helm",) if any("helm" in getattr(item, "fixturenames", ()) for item in here) else ()
    binaries(*CONTROL_PLANE, *helm, progress=lambda line: _say(session.config, line))


@pytest.fixture(scope="session")
def control_plane() -> Iterator[ControlPlane]:
    """A control plane whose controllers run; pods stay Pending, since it has neither scheduler nor nodes."""
    with on_loopback() as plane:
        yield plane


@pytest.fixture(scope="session")
def plane(control_plane: ControlPlane) -> ControlPlane:
    """The control plane that serves InferenceClusters, as the committed definition describes them."""
    inference_clusters.install(control_plane)
    return control_plane


@pytest.fixture(scope="session")
def helm() -> Helm:
    """Helm, with nothing of the user's own."""
    return Helm()


def _say(config: pytest.Config, line: str) -> None:
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    capture = config.pluginmanager.get_plugin("capturemanager")
    if reporter is not None and capture is not None:
        with capture.global_and_fixture_disabled():
            reporter.write_line(line)
