"""`swingpool profile`: from a table of measurements to a profile that loads, and nothing overwritten unasked."""

import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from swingpool.cli import profile as command
from swingpool_control.engine import profile
from swingpool_control.engine.measured import formats
from tests.support.known_models import KNOWN


def table() -> str:
    lines = ["seconds,prompt_tokens,sequences,context_tokens"]
    lines += [f"{0.015 + 2e-5 * n + 5e-10 * n * n},{n},," for n in range(500, 8001, 500)]
    lines += [f"{0.005 + 4e-5 * s + 3e-8 * s * c},,{s},{c}" for s in (1, 4, 16, 64, 128) for c in (100, 1000, 3000)]
    return "\n".join(lines) + "\n"


@pytest.fixture
def measurements(tmp_path: Path) -> Path:
    path = tmp_path / "table.csv"
    path.write_text(table())
    return path


def fit(measurements: Path, output: Path, *further: str) -> Result:
    described = ["--model", "org/Some_Model-7B", "--accelerator", "NVIDIA-L40S", "--kv-bytes-per-token", "131072"]
    arguments = ["fit", "--from", "csv", str(measurements), *described, "-o", str(output), *further]
    return CliRunner().invoke(command.command, arguments)


SAID = ("--source", "our lab", "--licence", "CC0-1.0", "--kv-capacity-tokens", "200000")


def test_a_table_becomes_a_profile(measurements: Path, tmp_path: Path) -> None:
    output = tmp_path / "profile.json"
    result = fit(measurements, output, *SAID, "--startup-s", "90", "--count", "2")
    assert result.exit_code == 0, result.output
    found = profile.parse(output.read_bytes(), origin="profile.json")
    assert found.name == "some-model-7b-nvidia-l40s"
    assert found.fits(model="org/some_model-7b", product="nvidia-l40s")
    for name in ("base_s", "prefill_token_s", "sequence_s", "context_token_s"):
        assert getattr(found.step, name) == pytest.approx(getattr(KNOWN, name), rel=0.01)
    assert (found.accelerator.count, found.kv.capacity_tokens, found.startup_s) == (2, 200_000, 90)
    provenance = found.provenance
    assert (provenance.source, provenance.licence, provenance.basis) == ("our lab", "CC0-1.0", "measurements")
    assert provenance.fitted.prompt_tokens == (500, 8000)
    assert provenance.error.prefill_typical is not None
    assert provenance.error.prefill_typical < 0.01
    assert [note for note in provenance.notes if note.startswith("Assumed")] == [
        "Assumed: link_bytes_per_s 1.25e+10",
        "Assumed: link_latency_s 0.005",
    ]


def test_a_profile_is_shown(measurements: Path, tmp_path: Path) -> None:
    output = tmp_path / "profile.json"
    fit(measurements, output, *SAID)
    result = CliRunner().invoke(command.command, ["show", str(output)])
    assert result.exit_code == 0
    for text in ("our lab", "CC0-1.0", "derived from", "500 to 8000", "prefill_token_s", "beyond the fitted range"):
        assert text in result.output
    assert "does not fit into the KV cache" in result.output
    assert CliRunner().invoke(command.command, ["show", "demo"]).output.startswith("demo: An invented worker")


def test_knees_are_shown_only_where_there_are_some(tmp_path: Path) -> None:
    bent = profile.built_in("demo").model_dump(mode="json")
    bent["step"] |= {"prefill_knee_tokens": 2048, "prefill_over_token_s": 1e-4}
    path = tmp_path / "bent.json"
    path.write_text(profile.Profile.model_validate(bent).model_dump_json())
    shown = CliRunner().invoke(command.command, ["show", str(path)]).output
    assert "beyond 2048" in shown
    assert "over_sequence_s" not in shown
    assert "prefill_over_token_s" not in CliRunner().invoke(command.command, ["show", "demo"]).output


def test_a_file_is_overwritten_only_by_force(measurements: Path, tmp_path: Path) -> None:
    output = tmp_path / "profile.json"
    output.write_text("precious")
    result = fit(measurements, output, *SAID)
    assert result.exit_code == 1
    assert "exists; --force overwrites it" in result.output
    assert output.read_text() == "precious"
    assert fit(measurements, output, *SAID, "--force").exit_code == 0
    assert profile.parse(output.read_bytes(), origin="").name == "some-model-7b-nvidia-l40s"


@pytest.mark.parametrize(
    ("further", "message"),
    [
        (SAID[:4], "does not tell how many tokens of KV cache a worker holds; say it with --kv-capacity-tokens"),
        (SAID[2:], "does not tell where the measurements come from; say it with --source"),
        ((*SAID, "--set", "x"), "there is no set 'x'"),
        ((*SAID, "--name", "Not A Name"), "name"),
    ],
)
def test_what_is_missing_is_told(measurements: Path, tmp_path: Path, further: tuple[str, ...], message: str) -> None:
    result = fit(measurements, tmp_path / "profile.json", *further)
    assert result.exit_code == 1
    assert message in result.output
    assert not (tmp_path / "profile.json").exists()


def test_a_broken_table_is_told_by_line_and_column(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_text(table() + "0.1,many,,\n")
    result = fit(path, tmp_path / "profile.json", *SAID)
    assert f"{path}, line 33, prompt_tokens: must be a finite number, zero or more, not 'many'" in result.output


def test_an_output_that_cannot_be_written(measurements: Path, tmp_path: Path) -> None:
    result = fit(measurements, tmp_path / "nowhere" / "profile.json", *SAID)
    assert result.exit_code == 1
    assert "cannot write" in result.output


def test_what_is_no_profile() -> None:
    result = CliRunner().invoke(command.command, ["show", "nope"])
    assert result.exit_code == 1
    assert "nope is neither a file nor a built-in profile; built in are demo" in result.output


def test_every_form_is_offered_and_scipy_is_loaded_only_to_fit() -> None:
    assert set(command.FORMATS) == set(formats.FORMATS)
    check = "import sys, swingpool.cli.profile; sys.exit('scipy' in sys.modules or 'numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0


def roofline(output: Path, *further: str) -> Result:
    return CliRunner().invoke(
        command.command, ["roofline", "--accelerator", "NVIDIA-H200", "-o", str(output), *further]
    )


def test_a_roofline_of_a_known_model(tmp_path: Path) -> None:
    output = tmp_path / "profile.json"
    result = roofline(output, "--model", "Qwen/Qwen3-32B", "--weights", "fp8", "--tensor-parallel-size", "2")
    assert result.exit_code == 0, result.output
    assert "derived from" in result.output
    assert "roofline" in result.output
    found = profile.parse(output.read_bytes(), origin="profile.json")
    assert found.name == "qwen3-32b-h200-tp2-roofline"
    assert found.fits(model="Qwen3-32B", product="NVIDIA-H200")
    assert roofline(output, "--model", "Qwen/Qwen3-32B").exit_code == 1


def test_a_roofline_of_a_models_own_file(tmp_path: Path) -> None:
    config, output = tmp_path / "config.json", tmp_path / "profile.json"
    config.write_text('{"num_hidden_layers": 28, "hidden_size": 3072, "num_attention_heads": 24}')
    given = ("--model", "org/Small", "--config", str(config))
    assert "--config and --parameters go together" in roofline(output, *given).output
    assert roofline(output, *given, "--parameters", "3.2e9").exit_code == 0
    assert profile.parse(output.read_bytes(), origin="").models == ["org/Small"]
    unknown = roofline(tmp_path / "other.json", "--model", "org/Small")
    assert unknown.exit_code == 1
    assert "the shape of model 'org/Small' is not known" in unknown.output
