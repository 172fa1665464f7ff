"""`swingpool simulate`, as a user calls it."""

import csv
import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from swingpool.cli.main import main
from swingpool_control.engine import profile
from swingpool_control.simulation.cluster import Simulation

ROOT = Path(__file__).resolve().parents[3]
SAMPLE = ROOT / "manifests" / "samples" / "simulated.yaml"
DEMO = ROOT / "controllers" / "swingpool_control" / "engine" / "profiles" / "demo.json"
LOAD = """\
phases:
- {seconds: 10, requestsPerSecond: 4, mix: [{promptTokens: {mean: 200, sigma: 0.3}, outputTokens: 10}]}
"""


@pytest.fixture
def traffic(tmp_path: Path) -> Path:
    path = tmp_path / "load.yaml"
    path.write_text(LOAD)
    return path


def simulate(traffic: Path, *arguments: str, cluster: Path = SAMPLE) -> Result:
    return CliRunner().invoke(
        main, ["simulate", "-f", str(cluster), "--traffic", str(traffic), *arguments], env={"COLUMNS": "160"}
    )


def test_policies_stand_side_by_side(traffic: Path, tmp_path: Path) -> None:
    found, rows = tmp_path / "found.json", tmp_path / "rows.csv"
    result = simulate(traffic, "--policy", "ours", "--policy", "static", "--json", str(found), "--csv", str(rows))
    assert result.exit_code == 0, result.output
    header = next(line for line in result.stdout.splitlines() if "ours" in line)
    assert "static" in header
    for name in ("met TTFT and ITL", "TTFT within 1.5 s (p95)", "accelerator hours", "workers started", "preemptions"):
        assert name in result.stdout
    content = json.loads(found.read_text())
    assert [one["policy"] for one in content["results"]] == ["ours", "static"]
    with rows.open() as file:
        table = list(csv.DictReader(file))
    for one in content["results"]:
        mine = [row for row in table if row["policy"] == one["policy"]]
        assert len(mine) == one["requests"] == one["completed"]
        assert max(float(row["ttft_s"]) for row in mine) == pytest.approx(one["ttft"]["largest_s"], abs=1e-6)


def test_every_kind_of_policy_runs_on_a_cluster_with_swing_pools(traffic: Path, tmp_path: Path) -> None:
    series = tmp_path / "series.csv"
    names = ("ours", "hpa", "clairvoyant")
    policies = [argument for name in names for argument in ("--policy", name)]
    result = simulate(traffic, *policies, "--series", str(series))
    assert result.exit_code == 0, result.output
    with series.open() as file:
        windows = list(csv.DictReader(file))
    assert list(dict.fromkeys(window["policy"] for window in windows)) == list(names)
    for name in names:
        mine = [window for window in windows if window["policy"] == name]
        assert sum(int(window["arrivals"]) for window in mine) == sum(int(window["ended"]) for window in mine) > 0
        assert all(float(window["workers_prefill"]) >= 1 for window in mine)


def test_equal_seeds_give_equal_files(traffic: Path, tmp_path: Path) -> None:
    texts = []
    for name, seed in (("a", "3"), ("b", "3"), ("c", "4")):
        path = tmp_path / f"{name}.csv"
        assert simulate(traffic, "--seed", seed, "--csv", str(path)).exit_code == 0
        texts.append(path.read_text())
    assert texts[0] == texts[1] != texts[2]


@pytest.mark.parametrize("option", ["--json", "--csv", "--series"])
def test_nothing_is_written_over_unasked(traffic: Path, tmp_path: Path, option: str) -> None:
    path = tmp_path / "mine"
    path.write_text("precious")
    result = simulate(traffic, option, str(path))
    assert result.exit_code == 1
    assert f"{path} exists; give another name, or --force" in result.output
    assert path.read_text() == "precious"
    assert simulate(traffic, option, str(path), "--force").exit_code == 0
    assert "precious" not in path.read_text()


def test_ctrl_c_keeps_what_was_computed(traffic: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    advance = Simulation.advance

    def interrupted(self: Simulation, *, events: int) -> bool:
        advance(self, events=events // 20)
        raise KeyboardInterrupt

    monkeypatch.setattr(Simulation, "advance", interrupted)
    found = tmp_path / "found.json"
    result = simulate(traffic, "--policy", "ours", "--policy", "static", "--json", str(found))
    assert result.exit_code == 130
    assert "ours (broken off)" in result.stdout
    (only,) = json.loads(found.read_text())["results"]
    assert not only["finished"]
    assert only["completed"] > 0


def test_pools_may_have_profiles_of_their_own(traffic: Path, tmp_path: Path) -> None:
    slow = tmp_path / "slow.json"
    slow.write_text(json.dumps(as_slow(json.loads(DEMO.read_text()))))
    found = {}
    for name, given in (("as they are", ()), ("slow", ("--profile", "demo", "--profile", f"decode={slow}"))):
        path = tmp_path / f"found {name}.json"
        result = simulate(traffic, "--policy", "static", *given, "--json", str(path))
        assert result.exit_code == 0, result.output
        found[name] = json.loads(path.read_text())["results"][0]
    assert found["slow"]["itl"]["mean_s"] > 1.2 * found["as they are"]["itl"]["mean_s"]
    refused = simulate(traffic, "--profile", "nowhere=demo")
    assert "there is no pool nowhere" in refused.output


def as_slow(content: dict[str, Any]) -> dict[str, Any]:
    """Return a profile whose iterations take three times as long."""
    content["step"]["base_s"] *= 3
    return content


def test_energy_and_carbon_stand_beside_the_others(traffic: Path, tmp_path: Path) -> None:
    pools = [pool["name"] for pool in yaml.safe_load(SAMPLE.read_text())["spec"]["pools"]]
    watts = {pool: {"idle": 100, "prefill": 700, "decode": 400} for pool in pools}
    tariff = tmp_path / "tariff.yaml"
    content = {
        "repeatEvery": "20s",
        "watts": watts,
        "power": [{"value": 0.1}, {"at": "5s", "value": 0.3}],
        "carbon": 50,
    }
    tariff.write_text(yaml.safe_dump(content))
    found = tmp_path / "found.json"
    policies = ("--policy", "ours", "--policy", "static")
    result = simulate(traffic, *policies, "--tariff", str(tariff), "--json", str(found))
    assert result.exit_code == 0, result.output
    assert "energy, kWh" in result.stdout
    assert "CO2, kg" in result.stdout
    for one in json.loads(found.read_text())["results"]:
        assert 0.1 < one["energy_cost"] / one["energy_kwh"] < 0.3
        assert one["carbon_kg"] == pytest.approx(one["energy_kwh"] * 0.05)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("power: [{at: 5s, value: 1}]", "power: the first figure must be given for the begin"),
        ("power: [{at: soon, value: 1}]", r"power\..*at: "),
        ("watts: {a: {idle: 9, prefill: 1, decode: 1}}", "watts.a: .*idle is more"),
        ("energy: 5", "energy: Extra inputs"),
        ("workers: {nowhere: 5}", "there is no pool 'nowhere'"),
        ("{", "not YAML"),
    ],
)
def test_a_wrong_tariff_is_named_by_its_field(traffic: Path, tmp_path: Path, content: str, message: str) -> None:
    tariff = tmp_path / "tariff.yaml"
    tariff.write_text(content)
    result = simulate(traffic, "--tariff", str(tariff))
    assert result.exit_code == 1
    assert re.search(message, result.output)


def test_a_profile_may_be_given_or_stand_in_the_file(traffic: Path, tmp_path: Path) -> None:
    text = profile.built_in("demo").model_dump_json()
    own = tmp_path / "own.json"
    own.write_text(text)
    resource = yaml.safe_load(SAMPLE.read_text())
    resource["spec"]["profile"] = {"configMap": {"name": "profiles", "key": "demo.json"}}
    config_map = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "profiles"},
        "data": {"demo.json": text},
    }
    alone, both = tmp_path / "alone.yaml", tmp_path / "both.yaml"
    alone.write_text(yaml.safe_dump(resource))
    both.write_text(yaml.safe_dump_all([resource, config_map]))
    tables = {
        simulate(traffic).stdout.partition("\n")[2],
        simulate(traffic, "--profile", "demo").stdout.partition("\n")[2],
        simulate(traffic, "--profile", str(own)).stdout.partition("\n")[2],
        simulate(traffic, cluster=both).stdout.partition("\n")[2],
    }
    assert len(tables) == 1
    refused = simulate(traffic, cluster=alone)
    assert refused.exit_code == 1
    assert "no ConfigMap profiles with a key demo.json; add it, or give the profile with --profile" in refused.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--profile", "none-such"], "no built-in profile 'none-such'"),
        (["--replicas", "swing"], "no POOL=N such as prefill=3"),
        (["--replicas", "other=1"], "there is no pool 'other' to give replicas"),
        (["--startup", "soon"], "is not a duration such as"),
        (["--policy", "best"], "'best' is not one of"),
    ],
)
def test_wrong_options_are_explained(traffic: Path, arguments: list[str], message: str) -> None:
    result = simulate(traffic, *arguments)
    assert result.exit_code != 0
    assert message in result.output


def test_a_wrong_cluster_is_named_by_file_and_field(traffic: Path, tmp_path: Path) -> None:
    resource = yaml.safe_load(SAMPLE.read_text())
    resource["spec"]["pools"][0]["replica"] = 3
    path = tmp_path / "chat.yaml"
    path.write_text(yaml.safe_dump(resource))
    result = simulate(traffic, cluster=path)
    assert result.exit_code == 1
    assert "chat.yaml: spec.pools[0].replica: Extra inputs are not permitted" in result.output
