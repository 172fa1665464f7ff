"""`swingpool plan` as a person uses it."""

from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from swingpool.cli.plan import NOTHING_HOLDS, command
from swingpool_control.conditions.view import parse_spec

OFFER = """
apiVersion: swingpool.dev/v1alpha1
kind: InferenceCluster
metadata: {name: chat}
spec:
  model: {name: demo/chat}
  objectives: {ttft: {p95: 1s}, itl: {p95: 60ms}}
  pools:
  - {name: gpu, role: Swing, costPerHour: "3.50", replicas: {max: 8}}
"""
LOAD = """
phases:
- seconds: 20
  requestsPerSecond: 6
  mix:
  - {promptTokens: {mean: 900, sigma: 0.3}, outputTokens: 8}
- seconds: 20
  requestsPerSecond: 6
  mix:
  - {promptTokens: {mean: 40, sigma: 0.3}, outputTokens: 60}
"""


def run(folder: Path, *arguments: str, offer: str = OFFER) -> Result:
    (folder / "offer.yaml").write_text(offer)
    (folder / "load.yaml").write_text(LOAD)
    given = ["-f", str(folder / "offer.yaml"), "--traffic", str(folder / "load.yaml"), *arguments]
    return CliRunner(env={"COLUMNS": "200"}).invoke(command, given)


def test_it_plans_and_the_manifest_is_one_that_can_be_applied(tmp_path: Path) -> None:
    result = run(
        tmp_path, "--profile", "demo", "-o", str(tmp_path / "chat.yaml"), "--page", str(tmp_path / "page.html")
    )
    assert result.exit_code == 0, result.output
    assert "Plan for chat under load.yaml" in result.output
    assert "without disaggregation" in result.output
    manifest = yaml.safe_load((tmp_path / "chat.yaml").read_text())
    spec = parse_spec(manifest)
    assert manifest["metadata"]["name"] == "chat"
    assert {pool.name.partition("-")[0] for pool in spec.pools} == {"gpu"}
    assert "Plotly.newPlot" in (tmp_path / "page.html").read_text()


def test_what_does_not_fit_is_said_and_no_manifest_written(tmp_path: Path) -> None:
    offer = OFFER.replace("max: 8", "max: 2").replace("ttft: {p95: 1s}", "ttft: {p95: 1ms}")
    result = run(tmp_path, "--profile", "demo", "-o", str(tmp_path / "chat.yaml"), offer=offer)
    assert result.exit_code == NOTHING_HOLDS
    assert "No mix within the limits holds the objectives" in result.output
    assert not (tmp_path / "chat.yaml").exists()


def test_a_pool_without_a_profile_is_named_with_the_remedy(tmp_path: Path) -> None:
    result = run(tmp_path)
    assert result.exit_code == 1
    assert "pool gpu" in result.output
    assert "--profile gpu=NAME|FILE" in result.output


@pytest.mark.parametrize("given", ["other=demo", "gpu=nothing-like-it"])
def test_profiles_that_fit_nothing_are_refused(tmp_path: Path, given: str) -> None:
    result = run(tmp_path, "--profile", given)
    assert result.exit_code == 1
    assert given.partition("=")[0 if given.startswith("other") else 2] in result.output


def test_an_existing_file_is_kept(tmp_path: Path) -> None:
    (tmp_path / "chat.yaml").write_text("mine")
    result = run(tmp_path, "--profile", "demo", "-o", str(tmp_path / "chat.yaml"))
    assert result.exit_code == 1
    assert "--force" in result.output
    assert (tmp_path / "chat.yaml").read_text() == "mine"
