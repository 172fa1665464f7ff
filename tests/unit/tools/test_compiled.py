"""Compiling the core is optional, and never leaves behind what is older than its sources."""

import shutil
from pathlib import Path

import pytest

from tools import compiled


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the core that may be changed."""
    copy = tmp_path / "swingpool_control"
    shutil.copytree(compiled.SOURCES, copy, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(compiled, "SOURCES", copy)
    monkeypatch.setattr(compiled, "BUILT", tmp_path / "compiled")
    return copy


def test_what_requests_go_through_is_compiled() -> None:
    found = compiled.modules()
    for name in ("engine/batching", "placement/dispatcher", "simulation/runner"):
        assert f"swingpool_control/{name}.py" in found
    assert all((compiled.SOURCES.parent / name).is_file() for name in found)


def test_any_change_of_the_sources_needs_another_folder(sources: Path) -> None:
    before = compiled.folder()
    assert compiled.folder() == before
    changed = sources / "names.py"
    changed.write_text(changed.read_text() + "\n")
    assert compiled.folder() != before


def test_without_a_compiler_it_says_so(sources: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    with pytest.raises(compiled.NotCompiledError, match="no-such-compiler is not on the path"):
        compiled.build()
    assert not compiled.BUILT.exists()


def test_what_was_compiled_is_not_compiled_again(sources: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    compiled.folder().mkdir(parents=True)
    assert compiled.build() == compiled.folder()
