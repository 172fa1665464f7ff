"""`swingpool explain`: recorded decisions made again offline, and a status told in words."""

import io
import json
from dataclasses import replace
from pathlib import Path

import httpx2
import pytest
from click.testing import CliRunner, Result
from rich.console import Console

from swingpool.cli import explain
from swingpool.explain import text
from swingpool.explain.fetch import Cluster, FetchError
from swingpool.picker.journal import Entry
from swingpool_control.api.status import (
    FlipRecord,
    InferenceClusterStatus,
    ObservedFigure,
    Plan,
    PlanAlternative,
    PlannedPool,
    PlanThreshold,
    Reason,
)
from swingpool_control.replay.decision import Recording, SwingDecision, write
from tests.support.decisions import decisions


def run(*arguments: str) -> Result:
    return CliRunner().invoke(explain.command, list(arguments))


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("recorded") / "chat.json"
    recording = Recording(cluster="ns/chat", version="0.0.9", decisions=tuple(decisions(seconds=12)))
    path.write_text(json.dumps(write(recording)))
    return path


def test_recorded_decisions_come_out_the_same(recorded: Path) -> None:
    done = run("--replay", str(recorded))
    assert done.exit_code == 0, done.output
    lines = done.output.splitlines()
    assert lines[0].startswith("ns/chat, decided by swingpool 0.0.9, again by ")
    assert len(lines) == 25
    assert all(": the same: " in line for line in lines[1:])


def test_what_comes_out_otherwise_is_shown_and_is_the_exit_status(tmp_path: Path) -> None:
    newest = decisions(seconds=3)[-1]
    assert isinstance(newest, SwingDecision)
    changed = replace(newest, result=replace(newest.result, summary="something else"))
    path = tmp_path / "changed.json"
    path.write_text(json.dumps(write(Recording(cluster="ns/chat", version="1", decisions=(changed,)))))
    done = run("--replay", str(path), "-o", "json")
    assert done.exit_code == 1
    [decision] = json.loads(done.output)["decisions"]
    assert decision["loop"] == "swing"
    assert decision["differences"][0].startswith("summary: recorded 'something else'")


@pytest.mark.parametrize("content", ["", "{}", '{"format": "other"}', "[1]"])
def test_a_file_that_is_no_recording_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "strange.json"
    path.write_text(content)
    done = run("--replay", str(path))
    assert done.exit_code == 1
    assert str(path) in done.output


def test_either_a_cluster_or_a_file() -> None:
    assert run().exit_code == 2
    assert "give either CLUSTER or --replay FILE" in run().output


def test_a_status_is_told_in_words() -> None:
    status = InferenceClusterStatus(
        roles="2 prefill, 1 decode",
        workers="3/4",
        plan=Plan(
            at="2026-01-01T00:00:00Z",
            pools=(PlannedPool(name="swing", replicas=4),),
            prefill_workers=3,
            decode_workers=1,
            binding="MaxReplicas: pool swing may have 4 workers",
            reasons=(Reason(code="ScaleUp", message="pool swing from 3 to 4 workers"),),
            observed=(ObservedFigure(name="requestsPerSecond", value="12.5"),),
            forecast=(ObservedFigure(name="requestsPerSecond", value="15 (12 to 19)"),),
            alternatives=(
                PlanAlternative(change="one worker less in pool swing", cost_per_hour="-4.1", breaks="TTFT: prefill"),
            ),
            thresholds=(PlanThreshold(at="14.2 requests/s", change="one more prefill worker"),),
        ),
        flips=(
            FlipRecord(
                worker="w-1",
                from_="decode",
                to="prefill",
                decided_at="2026-01-01T00:00:00Z",
                outcome="Serving",
                reason="r",
            ),
        ),
    )
    console = Console(record=True, width=200, file=io.StringIO())
    console.print(text.status("ns/chat", "Recommend", status))
    shown = console.export_text()
    for words in (
        "Recommended, not carried out of 2026-01-01T00:00:00Z",
        "swing 4: 3 for prefill, 1 for decode",
        "bound by MaxReplicas: pool swing may have 4 workers",
        "15 (12 to 19)",
        "one worker less in pool swing, -4.1 per hour: breaks TTFT: prefill",
        "at 14.2 requests/s: one more prefill worker",
        "w-1: decode to prefill, Serving: r",
    ):
        assert words in shown


def test_a_request_is_told_by_whichever_picker_remembers_it() -> None:
    entry = Entry("id 1", "/v1/completions", kind="", tenant="alice", stream=True, arrived_unix_s=1_700_000_000.0)
    entry.step("prompt to w-1")
    entry.first_token_unix_s, entry.predicted_first_token_s = entry.arrived_unix_s + 0.5, 0.4
    entry.ended(200)
    asked = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        asked.append(request.url.raw_path.decode())
        if "/proxy/" not in asked[-1]:
            pods = [{"metadata": {"name": name}} for name in ("router-a", "router-b")]
            return httpx2.Response(200, json={"items": pods})
        return httpx2.Response(200, json=[entry.told()]) if "router-b" in asked[-1] else httpx2.Response(404)

    with httpx2.Client(transport=httpx2.MockTransport(answer), base_url="http://api") as client:
        found = Cluster(client, "ns").request("ns", "chat", "id 1", port=9002)
        assert asked[-1] == "/api/v1/namespaces/ns/pods/router-b:9002/proxy/requests/id%201"
    console = Console(record=True, width=200, file=io.StringIO())
    console.print(text.requests(found))
    shown = console.export_text()
    assert "id 1   /v1/completions, stream   tenant alice" in shown
    assert "at router-b" in shown
    assert "prompt to w-1" in shown
    assert "first token, predicted at 0.400 s" in shown
    assert "ended with status 200" in shown


def test_without_router_pods_a_request_cannot_be_told() -> None:
    def answer(_: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, json={"items": []})

    with (
        httpx2.Client(transport=httpx2.MockTransport(answer), base_url="http://api") as client,
        pytest.raises(FetchError, match="no router pod"),
    ):
        Cluster(client, "ns").request("ns", "chat", "id", port=9002)
