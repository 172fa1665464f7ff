"""The options by which every long-running command is told how to log."""

from collections.abc import Callable
from typing import Any, TypeVar, get_args

import click

from swingpool.telemetry.logs import LogFormat, LogLevel

Command = TypeVar("Command", bound=Callable[..., Any])


def log_options(command: Command) -> Command:
    """Add `--log-format` and `--log-level`, as `log_format` and `log_level`."""
    level = click.option(
        "--log-level", type=click.Choice(get_args(LogLevel)), default="info", show_default=True,
        help="Least level that is logged.",
    )  # fmt: skip
    log_format = click.option(
        "--log-format", type=click.Choice(get_args(LogFormat)), default="auto", show_default=True,
        help="auto: text on a terminal, JSON elsewhere.",
    )  # fmt: skip
    return log_format(level(command))
