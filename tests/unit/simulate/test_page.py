"""The page of a simulation holds everything that it shows, and shows every policy."""

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from swingpool.cli.simulate import command
from swingpool.report import frame

LOAD = """
phases:
- seconds: 6
  requestsPerSecond: 4
  mix:
  - {promptTokens: 200, outputTokens: 8}
"""


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("page")
    (folder / "load<1>.yaml").write_text(LOAD)
    path = folder / "page.html"
    arguments = ["-f", "e2e/demo/sample.yaml", "--traffic", str(folder / "load<1>.yaml"), "--page", str(path)]
    result = CliRunner().invoke(command, [*arguments, "--policy", "ours", "--policy", "static"])
    assert result.exit_code == 0, result.output
    return path.read_text()


def test_it_needs_nothing_from_elsewhere(page: str) -> None:
    assert not re.search(r"<(script|link|img)[^>]+(src|href)=", page)
    assert "Plotly.newPlot" in page


def test_every_policy_has_its_column_its_lines_and_its_workers(page: str) -> None:
    assert "<th>ours</th><th>static</th>" in page
    plots = re.findall(r"Plotly\.newPlot\(\s*\"[^\"]+\",\s*(\[.*?\]),\s*\{", page, flags=re.DOTALL)
    lines = [json.loads(plot) for plot in plots]
    assert [trace["name"] for trace in lines[0]] == ["ours", "static"]
    for trace in ("ours", "static", "objective (p95)"):
        assert trace in {line["name"] for line in lines[2]}
    assert len(lines) == 5, "three plots of all, and the workers of each"
    assert {"prefill", "decode"} <= {trace["name"] for trace in lines[3] if trace["x"]}


def test_names_from_outside_are_no_markup(page: str) -> None:
    assert "load&lt;1&gt;.yaml" in page
    assert "load<1>" not in page


def test_an_existing_page_is_not_written_over_unasked(tmp_path: Path) -> None:
    (tmp_path / "load.yaml").write_text(LOAD)
    kept = tmp_path / "page.html"
    kept.write_text("mine")
    arguments = ["-f", "e2e/demo/sample.yaml", "--traffic", str(tmp_path / "load.yaml"), "--page", str(kept)]
    result = CliRunner().invoke(command, arguments)
    assert result.exit_code != 0
    assert "--force" in result.output
    assert kept.read_text() == "mine"


def test_a_table_marks_what_holds_and_what_does_not() -> None:
    text = frame.table(("", "a"), [[("x", "99.0% holds"), ("y", "1.0% FAILS"), ("z", "3")]])
    assert '<td class="good">99.0% holds</td>' in text
    assert '<td class="bad">1.0% FAILS</td>' in text
    assert "<td>3</td>" in text
