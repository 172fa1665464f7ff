"""The profiling Job: its command line, and what is made of its log."""

import click
from click.testing import CliRunner

from swingpool.cli import profile_measure
from swingpool.cli.profile_job import FORWARDED, forwarded
from swingpool.profiling import job
from swingpool_control.engine.profile import built_in

ASKED = ("http://10.0.0.7:8000", "--accelerator", "X", "--kv-bytes-per-token", "131072", "-o", "out.json")


def test_options_of_the_command_are_options_of_the_job() -> None:
    flags = {name for one in profile_measure.command.params if isinstance(one, click.Option) for name in one.opts}
    assert set(FORWARDED.values()) <= flags
    assert forwarded({"products": ("A", "B"), "tolerance": 0.05, "name": None, "seed": 0}) == [
        *("--accelerator", "A", "--accelerator", "B", "--tolerance", "0.05", "--seed", "0")
    ]


def test_the_profile_is_the_last_line_of_the_log_that_is_one() -> None:
    line = built_in("demo").model_dump_json(exclude_none=True)
    assert job.result(["1 of 2: prefill", "{not one}", line, "{}"]) == built_in("demo")
    assert job.result(["1 of 2: prefill"]) is None


def test_a_job_goes_on_until_it_says_how_it_ended() -> None:
    assert job.ended({}) is None
    assert job.ended({"status": {"conditions": [{"type": "Complete", "status": "True"}]}}) == "Complete"
    failed = {"type": "Failed", "status": "True", "message": "too often"}
    assert job.ended({"status": {"conditions": [failed]}}) == "Failed: too often"


def test_what_would_be_made_can_be_seen_first() -> None:
    result = CliRunner().invoke(profile_measure.command, [*ASKED, "--job", "--image", "swingpool:1", "--print-job"])
    assert result.exit_code == 0, result.output
    assert '"kind": "Job"' in result.output
    assert "swingpool:1" in result.output
    refused = CliRunner().invoke(profile_measure.command, [*ASKED, "--job"])
    assert refused.exit_code == 2
    assert "--image" in refused.output
