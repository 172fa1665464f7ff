"""The real control plane that integration tests share: one for each test session, on loopback, without nodes."""

from collections.abc import Iterator

import pytest

from e2e.cluster.binaries import CONTROL_PLANE, binaries
from e2e.cluster.controlplane import ControlPlane, on_loopback


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> None:
    """Build what the control plane needs before the first test, whose time limit is far shorter than a build."""
    needed = any("control_plane" in getattr(item, "fixturenames", ()) for item in session.items)
    if not needed or session.config.option.collectonly:
        return
    binaries(*CONTROL_PLANE, progress=lambda line: _say(session.config, line))


@pytest.fixture(scope="session")
def control_plane() -> Iterator[ControlPlane]:
    """A control plane whose controllers run; pods stay Pending, since it has neither scheduler nor nodes."""
    with on_loopback() as plane:
        yield plane


def _say(config: pytest.Config, line: str) -> None:
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    capture = config.pluginmanager.get_plugin("capturemanager")
    if reporter is not None and capture is not None:
        with capture.global_and_fixture_disabled():
            reporter.write_line(line)
