"""A session ends as it should, however it went; and a scenario that fails is told, explained, and stops nobody."""

import io
import json
import signal
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from e2e.cluster.interface import ClusterError
from e2e.scenarios import run
from e2e.scenarios.scenario import Scenario
from e2e.scenarios.stage import Stage
from e2e.system import session as sessions


class FakeCluster:
    """Notes what is asked of it."""

    name = "fake"
    kubeconfig = Path("/nowhere")

    def __init__(self) -> None:
        self.calls: list[str] = []

    def down(self, progress: Any) -> None:
        self.calls.append("down")

    def diagnostics(self, directory: Path) -> None:
        self.calls.append("diagnostics")
        (directory / "pods.txt").write_text("all of them")

    def server_version(self) -> str:
        return "v1.37.2"


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCluster]:
    fake = FakeCluster()
    monkeypatch.setattr(sessions, "provided", lambda: fake)
    monkeypatch.setattr(sessions, "start", lambda cluster, say: SimpleNamespace(cluster=cluster))
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield fake
    for number, handler in before.items():
        signal.signal(number, handler)


def _session(tmp_path: Path, *, keep: bool = False, told: list[str] | None = None) -> Any:
    say = (told if told is not None else []).append
    return sessions.session(keep=keep, diagnostics=tmp_path / "diagnostics", say=say)


def test_a_session_takes_its_cluster_down(cluster: FakeCluster, tmp_path: Path) -> None:
    with _session(tmp_path):
        assert cluster.calls == []
    assert cluster.calls == ["down"]


def test_a_session_that_is_asked_to_end_takes_its_cluster_down(cluster: FakeCluster, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), _session(tmp_path):
        signal.raise_signal(signal.SIGTERM)
    assert cluster.calls == ["down"]


def test_a_kept_cluster_stays_and_how_to_end_it_is_told(cluster: FakeCluster, tmp_path: Path) -> None:
    told: list[str] = []
    with _session(tmp_path, keep=True, told=told):
        pass
    assert cluster.calls == []
    assert "make cluster-down" in told[-1]


def test_a_failure_is_explained_before_the_cluster_goes(cluster: FakeCluster, tmp_path: Path) -> None:
    with pytest.raises(ClusterError), _session(tmp_path):
        raise ClusterError("no node is ready")
    assert cluster.calls == ["diagnostics", "down"]
    assert (tmp_path / "diagnostics" / "pods.txt").exists()


def test_an_interruption_needs_no_explanation(cluster: FakeCluster, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), _session(tmp_path):
        raise KeyboardInterrupt
    assert cluster.calls == ["down"]


class FakeGuard:
    """A guard that saw nothing wrong, or what it is told to have seen."""

    seen: tuple[str, ...] = ()

    def __init__(self, kubeconfig: Path) -> None:
        self.changes = 3
        self.faults = list(self.seen)

    def stop(self) -> None:
        """Nothing to stop."""


def _play(tmp_path: Path, cluster: FakeCluster, scenarios: list[Scenario]) -> tuple[bool, dict[str, Any], str]:
    system: Any = SimpleNamespace(cluster=cluster, fresh_namespace=lambda name: None)
    text = io.StringIO()
    held = run.play(
        system, scenarios, quick=False, out=tmp_path, console=Console(file=text, width=160), say=lambda line: None
    )
    return held, json.loads((tmp_path / "report.json").read_text()), text.getvalue()


def test_every_scenario_plays_even_after_one_that_fails(
    cluster: FakeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "Guard", FakeGuard)
    monkeypatch.setattr(Stage, "settle", lambda stage: None)

    def fails(stage: Stage) -> dict[str, Any]:
        raise AssertionError("2 of 90 requests failed")

    scenarios = [
        Scenario(name="bad", about="it holds", run=fails),
        Scenario(name="good", about="it holds, too", run=lambda stage: {"requests": 90, "failed": 0}),
    ]
    held, report, printed = _play(tmp_path, cluster, scenarios)
    assert not held
    assert [(item["name"], item["holds"]) for item in report["scenarios"]] == [
        ("bad", False),
        ("good", True),
        ("role-guard", True),
    ]
    assert report["holds"] is False
    assert "2 of 90 requests failed" in report["scenarios"][0]["error"]
    assert report["scenarios"][1]["facts"] == {"requests": 90, "failed": 0}
    assert (tmp_path / "diagnostics" / "bad" / "pods.txt").exists()
    assert "2 of 90 requests failed" in printed
    assert _play(tmp_path, cluster, scenarios[1:])[0]


def test_a_fault_that_the_guard_saw_fails_the_whole_run(
    cluster: FakeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "Guard", type("Alarmed", (FakeGuard,), {"seen": ("a left role prefill",)}))
    monkeypatch.setattr(Stage, "settle", lambda stage: None)
    held, report, _ = _play(tmp_path, cluster, [Scenario(name="good", about="it holds", run=lambda stage: {})])
    assert not held
    assert report["scenarios"][-1]["error"] == "a left role prefill"
