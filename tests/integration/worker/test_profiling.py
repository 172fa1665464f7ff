"""A profile is measured of a worker whose true one is known: a simulated one."""

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from swingpool.cli.profile import command
from swingpool_control.engine.model import decode_step_s, prefill_s
from swingpool_control.engine.profile import built_in, parse
from tests.support.workers import WorkerProcess


def run(*arguments: str) -> str:
    """Run `swingpool profile measure`, which must succeed; return what it printed."""
    result = CliRunner().invoke(command, ["measure", *arguments])
    assert result.exit_code == 0, result.output
    return result.output


@pytest.mark.timeout(300)
def test_what_is_measured_is_what_the_worker_is(tmp_path: Path) -> None:
    output = tmp_path / "profile.json"
    asked = (
        *("--accelerator", "SIMULATED", "--kv-bytes-per-token", "131072", "--max-batched-tokens", "2048"),
        *(
            "--max-sequences",
            "2",
            "--max-prompt-tokens",
            "200",
            "--least-repeats",
            "2",
            "--tolerance",
            "0.5",
            "-o",
            str(output),
        ),
    )
    with WorkerProcess(speedup=1.0) as worker, WorkerProcess(speedup=1.0) as other:
        told = run(worker.url, "--pair", other.url, *asked)
        journal = output.with_suffix(".journal.jsonl")
        points = len({json.dumps(json.loads(line)["point"]) for line in journal.read_text().splitlines()[1:]})
        # What was measured is not measured again.
        again = run(worker.url, "--pair", other.url, *asked, "--force")
        assert f"{points} of {points} points were measured before" in again
    true = built_in("demo").model()
    found = parse(output.read_bytes(), origin="measured").model()
    # Python and a busy machine add some milliseconds to each; no more can be asked of a test.
    for prompt in (100, 200):
        assert prefill_s(found, prompt_tokens=prompt) == pytest.approx(prefill_s(true, prompt_tokens=prompt), rel=0.5)
    assert decode_step_s(found, sequences=2, context_tokens=300) == pytest.approx(
        decode_step_s(true, sequences=2, context_tokens=300), rel=0.5
    )
    assert "within" in told
    assert re.search("plotly", output.with_suffix(".html").read_text()) is not None


def test_the_first_error_ends_it_and_keeps_what_was_measured(tmp_path: Path) -> None:
    output = tmp_path / "profile.json"
    result = CliRunner().invoke(
        command,
        [
            *("measure", "http://127.0.0.1:9", "--accelerator", "X", "--kv-bytes-per-token", "1", "-o", str(output)),
        ],
    )
    assert result.exit_code == 1
    assert "http://127.0.0.1:9" in result.output
    assert not output.exists()


def test_a_journal_of_another_worker_is_refused(tmp_path: Path) -> None:
    output = tmp_path / "profile.json"
    journal = output.with_suffix(".journal.jsonl")
    journal.write_text(json.dumps({"format": "swingpool-profiling-journal/v1", "about": {"model": "other"}}) + "\n")
    with WorkerProcess() as worker:
        result = CliRunner().invoke(
            command,
            ["measure", worker.url, "--accelerator", "X", "--kv-bytes-per-token", "1", "-o", str(output)],
        )
    assert result.exit_code == 1
    assert "another worker" in result.output
