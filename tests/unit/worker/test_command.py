"""`swingpool worker` as it is called."""

from click.testing import CliRunner

from swingpool.cli.main import main


def test_help_lists_the_arguments() -> None:
    result = CliRunner().invoke(main, ["worker", "--help"])
    assert result.exit_code == 0
    for flag in ("--served-model-name", "--kv-transfer-config", "--profile", "--speedup", "--startup-delay"):
        assert flag in result.output


def test_a_broken_argument_is_told_in_one_line() -> None:
    result = CliRunner().invoke(main, ["worker", "--speedup", "0"])
    assert result.exit_code == 1
    assert result.output == "Error: --speedup must be a finite number above zero, not 0.0\n"


def test_a_broken_profile_is_told_in_one_line() -> None:
    result = CliRunner().invoke(main, ["worker", "--profile", "nope"])
    assert result.exit_code == 1
    assert result.output.startswith("Error: there is no built-in profile 'nope'")


def test_a_port_out_of_range_is_told_with_what_would_do() -> None:
    result = CliRunner().invoke(main, ["worker", "--port", "65536"])
    assert result.exit_code == 2
    assert "--port: must be a port, 0 to 65535, not '65536'" in result.stderr
