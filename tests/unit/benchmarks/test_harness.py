"""What every benchmark promises: one JSON line at the end, and an exit code that says whether it ran."""

import json
from functools import partial
from pathlib import Path

import pytest

from benchmarks import harness
from benchmarks.harness import Run


def last_line(capsys: pytest.CaptureFixture[str]) -> dict[str, object]:
    return json.loads(capsys.readouterr().out.splitlines()[-1])  # type: ignore[no-any-return]


def test_the_last_line_is_the_result(capsys: pytest.CaptureFixture[str]) -> None:
    def measure(run: Run) -> None:
        run.say("working")
        run.figures["seed"] = run.seed
        run.at_most("error", 0.03, 0.02)
        run.at_least("ratio", 1.5, 1.2)

    assert harness.main("example", measure, takes="no time", argv=["--seed", "7"]) == 0
    result = last_line(capsys)
    assert result["benchmark"] == "example"
    assert result["holds"] is False
    assert isinstance(result["figures"], dict)
    assert result["figures"]["seed"] == 7
    assert result["bars"] == [
        {"name": "error", "value": 0.03, "limit": 0.02, "holds": False},
        {"name": "ratio", "value": 1.5, "limit": 1.2, "holds": True},
    ]


def test_a_run_without_its_data_did_not_run(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(harness, "DATA", tmp_path)
    (tmp_path / "there.csv").write_text("1")

    def measure(run: Run) -> None:
        assert run.quick
        assert run.data("there.csv") == {"there.csv": b"1"}
        assert run.data("there.csv", "missing.csv") is None

    assert harness.main("example", measure, takes="no time", argv=["--quick"]) == 1
    result = last_line(capsys)
    assert result["holds"] is False
    assert isinstance(result["skipped"], list)
    assert "missing.csv" in result["skipped"][0]
    assert "SWINGPOOL_DATA" in result["skipped"][0]


def test_parts_of_a_long_run_are_made_once(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(harness, "PARTS", tmp_path)
    made: list[str] = []

    def make(name: str) -> dict[str, object]:
        made.append(name)
        return {name: (1, 2)}

    def measure(run: Run) -> None:
        for name in ("one", "two"):
            run.figures |= run.part(name, partial(make, name))
        run.at_most("parts", len(run.figures), 2)

    assert harness.main("example", measure, takes="no time", argv=["--minutes", "0"]) == 1
    assert "goes on" in capsys.readouterr().out
    assert not made
    for _ in range(2):
        assert harness.main("example", measure, takes="no time", argv=[]) == 0
        figures = last_line(capsys)["figures"]
        assert isinstance(figures, dict)
        assert (figures["one"], figures["two"]) == ([1, 2], [1, 2])
    assert made == ["one", "two"]
    assert harness.main("example", measure, takes="no time", argv=["--seed", "1"]) == 0
    assert made == ["one", "two"] * 2
