"""Options can be set by variables, which are named as the options are."""

import click
import pytest

from swingpool.cli import manager, picker
from swingpool.cli.main import main


@pytest.mark.parametrize("command", [manager.command, picker.command], ids=lambda command: command.name)
def test_a_variable_is_named_as_its_option(command: click.Command) -> None:
    for option in command.params:
        assert f"--{str(option.name).replace('_', '-')}" in option.opts


def test_a_variable_sets_its_option(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SWINGPOOL_MANAGER_SWINGPOOL_IMAGE", "one:1")
    monkeypatch.setenv("SWINGPOOL_MANAGER_SWING_PERIOD", "2.5")
    parent = click.Context(main, info_name="swingpool", **main.context_settings)
    found = manager.command.make_context("manager", [], parent=parent).params
    assert (found["swingpool_image"], found["swing_period"]) == ("one:1", 2.5)
