"""`swingpool profile import`: a profile of AIConfigurator's estimates, or what is missing."""

import json
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest
from click.testing import CliRunner, Result

from swingpool.aiconfigurator import client
from swingpool.cli import profile_file
from swingpool.cli.profile import command
from swingpool_control.engine.profile import parse
from tests.unit.aiconfigurator.test_points import answer

GIVEN = ("import", "--model", "Qwen/Qwen3-32B-FP8", "--system", "h200_sxm", "--accelerator", "NVIDIA-H200")


class Peer:
    """AIConfigurator's stand-in."""

    def __init__(self, python: Path) -> None:
        self.python = python

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        return answer(request)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(command, [*GIVEN, *arguments])


def test_a_profile_is_written_and_says_what_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "interpreter", lambda: Path("python"))
    monkeypatch.setattr(client, "AIConfigurator", Peer)
    output = tmp_path / "profile.json"
    result = run("-o", str(output), "--max-batched-tokens", "4096", "--startup-s", "90")
    assert result.exit_code == 0, result.output
    profile = parse(output.read_bytes(), origin="written")
    assert profile.provenance.basis == "operator-tables"
    assert not profile.provenance.measured
    assert profile.layout.max_batched_tokens == 4096
    assert profile.kv.capacity_tokens == 500_000
    assert profile.startup_s == 90
    assert json.loads(output.read_text())["format"] == "swingpool-profile/v2"
    assert "Assumed: link_bytes_per_s 1.25e+10" in profile.provenance.notes
    assert not any("startup_s" in note for note in profile.provenance.notes)
    assert "exists; --force overwrites it" in run("-o", str(output)).output


def test_without_aiconfigurator_it_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> Path:
        raise client.AIConfiguratorError("AIConfigurator is not installed: pip install it")

    monkeypatch.setattr(client, "interpreter", missing)
    result = run("-o", str(tmp_path / "profile.json"))
    assert result.exit_code == 1
    assert "AIConfigurator is not installed" in result.output


def test_first_principles_are_found_by_what_a_quantised_model_comes_from() -> None:
    full = profile_file.first_principles("Qwen/Qwen3-32B", "NVIDIA-H200", 2, 1.0)
    assert full is not None
    assert profile_file.first_principles("Qwen/Qwen3-32B-FP8", "NVIDIA-H200", 2, 1.0) == full
    assert profile_file.first_principles("Qwen/Qwen3-32B-FP8", "NVIDIA-H300", 2, 1.0) is None
    assert profile_file.first_principles("org/unheard-of", "NVIDIA-H200", 2, 1.0) is None
