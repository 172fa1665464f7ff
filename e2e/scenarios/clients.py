"""Clients of others, unchanged: the official openai package, curl, and a public load generator."""

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from e2e.clients import official
from e2e.clients.environment import environment
from e2e.cluster.paths import silent
from e2e.scenarios.scenario import Facts, Scenario
from e2e.scenarios.stage import MODEL, Stage

_LIMIT_S = 300.0
_REQUESTS = 60


def clients(stage: Stage) -> Facts:
    """Run each of them against the router, and look at what they saw."""
    found = environment(silent)
    seen = json.loads(_run([str(found.python), official.__file__, stage.url, MODEL]))
    expected = {"models": [MODEL], "completion_tokens": 9, "chat": True, "choices": 2, "usages": 1}
    expected |= {"unknown_model": 404, "bad_request": 400, "concurrent_streams": official.STREAMS}
    wrong = {name: seen.get(name) for name, value in expected.items() if seen.get(name) != value}
    assert not wrong, f"the openai package saw {wrong}"
    assert seen["streamed_characters"] > 0
    _curl(stage.url)
    report = _aiperf(stage, str(found.aiperf), str(found.tokenizer))
    sent = report["request_count"]["avg"]
    failed = (report.get("error_request_count") or {}).get("avg", 0)
    assert (sent, failed) == (_REQUESTS, 0), f"aiperf: {sent} requests succeeded, {failed} failed"
    return {
        "requests": int(sent),
        "failed": int(failed),
        "ttft_p50_ms": report["time_to_first_token"]["p50"],
        "requests_per_s": report["request_throughput"]["avg"],
    }


def _curl(url: str) -> None:
    assert MODEL in _run(["curl", "--fail", "--silent", "--show-error", f"{url}/v1/models"])
    body = {"model": MODEL, "messages": [{"role": "user", "content": "hello"}], "max_tokens": 7, "stream": True}
    post = ("curl", "--fail", "--silent", "--show-error", "--no-buffer", "--header", "content-type: application/json")
    lines = _run([*post, "--data", json.dumps(body), f"{url}/v1/chat/completions"]).split("\n\n")
    events = [line for line in lines if line]
    assert events[-1] == "data: [DONE]", events[-1]
    assert all(line.startswith("data: {") for line in events[:-1])


def _aiperf(stage: Stage, program: str, tokenizer: str) -> dict[str, Any]:
    out = stage.out / "aiperf"
    out.mkdir(parents=True, exist_ok=True)
    _run(
        [
            *(program, "profile", "--model", MODEL, "--url", stage.url, "--endpoint-type", "chat", "--streaming"),
            *("--tokenizer", tokenizer, "--concurrency", "6", "--request-count", str(_REQUESTS)),
            *("--isl", "150", "--osl", "20", "--artifact-dir", str(out), "--ui", "none"),
        ],
        cwd=out,
    )
    report: dict[str, Any] = json.loads(next(iter(sorted(out.rglob("profile_export_aiperf.json")))).read_text())
    return report


def _run(command: Sequence[str], *, cwd: Path | None = None) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_LIMIT_S, cwd=cwd)
    assert done.returncode == 0, f"{command[0]} ended with {done.returncode}: {(done.stdout + done.stderr)[-1500:]}"
    return done.stdout


SCENARIOS = (
    Scenario(
        name="clients",
        about="openai's package, curl and aiperf run unchanged: no request fails",
        run=clients,
        prepare=environment,
    ),
)
