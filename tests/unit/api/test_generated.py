"""Generated files: current in the tree, and told apart when they are not."""

from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from swingpool.cli.main import main as swingpool
from swingpool_control.api import crd
from tools import check_generated, generate


def test_committed_files_are_current() -> None:
    assert check_generated.main() == 0


def test_a_stale_and_a_missing_file_are_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stale = tmp_path / "stale.yaml"
    stale.write_text("a: 1\n")
    targets = {stale: lambda: "a: 2\n", tmp_path / "missing.yaml": lambda: ""}
    monkeypatch.setattr(check_generated, "TARGETS", targets)
    monkeypatch.setattr(check_generated, "ROOT", tmp_path)
    assert check_generated.main() == 1
    told = capsys.readouterr().out
    assert "stale.yaml: not what its source says; run `make generate`" in told
    assert "-a: 1\n+a: 2" in told
    assert "missing.yaml: missing; run `make generate`" in told


def test_writes_every_target(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(generate, "TARGETS", {tmp_path / "new" / "file": lambda: "text"})
    monkeypatch.setattr(generate, "ROOT", tmp_path)
    assert generate.main() == 0
    assert (tmp_path / "new" / "file").read_text() == "text"


def test_swingpool_crd_prints_the_definition() -> None:
    result = CliRunner().invoke(swingpool, ["crd"])
    assert result.exit_code == 0
    assert yaml.safe_load(result.output) == crd.definition()


def test_the_chart_holds_the_same_definition_but_for_its_switches() -> None:
    template = (generate.ROOT / "charts" / "swingpool" / "templates" / "crd.yaml").read_text()
    lines = [line for line in template.splitlines() if not line.lstrip().startswith("{{")]
    body = yaml.safe_load("\n".join(lines))
    assert body["metadata"].pop("annotations") == {"helm.sh/resource-policy": "keep"}
    assert body == crd.definition()


def test_the_reference_names_every_field() -> None:
    page = (generate.ROOT / "docs" / "reference" / "api.md").read_text()
    for field in ("## spec.pools[].engine", "tensorParallelSize", "**objectives**", "## status.flips[]", "servingAt"):
        assert field in page
