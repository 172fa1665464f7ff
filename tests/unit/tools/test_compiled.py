"""Compiling is optional, and never leaves behind what is older than its sources."""

import ast
import importlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from swingpool.cli.main import COMPILED, main
from swingpool.compiled import core
from tools import compiled

WHERE = "import swingpool_control; print(swingpool_control.__file__)"


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    """A copy of the core that may be changed."""
    copy = tmp_path / "swingpool_control"
    shutil.copytree(compiled.SOURCES, copy, ignore=shutil.ignore_patterns("__pycache__"))
    return copy


@pytest.fixture
def built(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "compiled"


def test_what_requests_go_through_is_compiled() -> None:
    found = core.modules(compiled.SOURCES)
    for name in ("engine/batching", "placement/dispatcher", "simulation/runner"):
        assert f"swingpool_control/{name}.py" in found
    assert all((compiled.SOURCES.parent / name).is_file() for name in found)
    in_picker = core.modules(compiled.SOURCES, core.PICKER)
    for name in ("swingpool_control/placement/dispatcher", "swingpool/picker/flow", "swingpool/picker/http2"):
        assert f"{name}.py" in in_picker
    roots = {core.PACKAGE: compiled.SOURCES.parent, core.SHELL.name: core.SHELL.parent}
    assert all((roots[name.partition("/")[0]] / name).is_file() for name in in_picker)


@pytest.mark.parametrize("part", list(core.PARTS.values()), ids=list(core.PARTS))
def test_no_function_catches_two_kinds_under_one_name(part: core.Part) -> None:
    """A compiled coroutine gives a name the type that it has first, and raises a TypeError for another."""
    roots = {core.PACKAGE: compiled.SOURCES.parent, core.SHELL.name: core.SHELL.parent}
    for name in core.modules(compiled.SOURCES, part):
        tree = ast.parse((roots[name.partition("/")[0]] / name).read_text())
        for function in ast.walk(tree):
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                caught = [one.name for one in ast.walk(function) if isinstance(one, ast.ExceptHandler) and one.name]
                assert len(caught) == len(set(caught)), f"{name}: {function.name} catches {caught}"


def test_parts_lie_apart(sources: Path, built: Path) -> None:
    assert core.folder(sources, built, core.PICKER) != core.folder(sources, built)


def test_what_is_loaded_and_not_compiled_is_named() -> None:
    for module in ("swingpool.picker.flow", "swingpool_control.placement.dispatcher"):
        importlib.import_module(module)
        assert module in core.interpreted(core.PICKER)
    assert "swingpool_control.names" not in core.interpreted(core.PICKER)


def test_any_change_of_the_sources_needs_another_folder(sources: Path, built: Path) -> None:
    before = core.folder(sources, built)
    assert core.folder(sources, built) == before
    (sources / "engine" / "batching.so").write_bytes(b"made from the sources")
    assert core.folder(sources, built) == before
    changed = sources / "names.py"
    changed.write_text(changed.read_text() + "\n")
    assert core.folder(sources, built) != before


def test_without_a_compiler_it_says_so(sources: Path, built: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    with pytest.raises(core.NotCompiledError, match="no-such-compiler is not on the path"):
        core.build(sources, built)
    assert not built.exists()


@pytest.mark.parametrize("part", [[], ["picker"]])
def test_the_command_says_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: list[str]) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    monkeypatch.setenv(core.CACHE, str(tmp_path))
    result = CliRunner().invoke(main, ["compile", *part])
    assert result.exit_code == 1
    assert "there is no C compiler: no-such-compiler" in result.output


def test_what_was_compiled_is_not_compiled_again(sources: Path, built: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    core.folder(sources, built).mkdir(parents=True)
    assert core.build(sources, built) == core.folder(sources, built)


@pytest.mark.parametrize(
    ("command", "environment", "is_used"),
    [
        ("simulate", {}, True),
        ("plan", {}, True),
        ("picker", {}, True),
        ("crd", {}, False),
        ("simulate", {core.CORE: "python"}, False),
        ("picker", {core.CORE: "python"}, False),
    ],
)
def test_commands_take_what_was_compiled_from_these_sources(
    tmp_path: Path, built: Path, command: str, environment: dict[str, str], is_used: bool
) -> None:
    """What lies in the folder is a mere copy here: only whether it is imported counts."""
    target = core.folder(compiled.SOURCES, built, COMPILED.get(command, core.SIMULATION))
    shutil.copytree(compiled.SOURCES, target / core.PACKAGE, ignore=shutil.ignore_patterns("__pycache__"))
    load = f"from swingpool.cli.main import main; main.get_command(None, {command!r}); {WHERE}"
    ended = subprocess.run(
        [sys.executable, "-c", load],
        env={
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(compiled.SOURCES.parent),
            core.CACHE: str(built.parent),
            **environment,
        },
        check=True,
        capture_output=True,
        text=True,
    )
    assert (str(target) in ended.stdout) == is_used
