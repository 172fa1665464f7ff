"""Kinds of values that `simulate` and `plan` take on the command line."""

from pathlib import Path

import click

from swingpool_control.api.quantities import seconds

FILE = click.Path(path_type=Path, dir_okay=False)
POSITIVE = click.FloatRange(min=0, min_open=True)


class Duration(click.ParamType[float]):
    """A duration such as `60s`, as seconds."""

    name = "duration"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the seconds."""
        if isinstance(value, float):
            return value
        try:
            return seconds(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


class Replicas(click.ParamType[tuple[str, int]]):
    """A pool and its workers at the start, such as `prefill=3`."""

    name = "pool=n"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, int]:
        """Return the pool's name and the number."""
        if isinstance(value, tuple):
            return value
        pool, equals, count = str(value).partition("=")
        if not equals or not count.isdecimal():
            self.fail(f"{value!r} is no POOL=N such as prefill=3", param, ctx)
        return pool, int(count)


class PoolProfile(click.ParamType[tuple[str, str]]):
    """A pool and its profile, such as `h200=profile.json`; a profile alone is for all pools."""

    name = "[pool=]name|file"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        """Return the pool, empty for all, and the profile."""
        if isinstance(value, tuple):
            return value
        pool, equals, profile = str(value).partition("=")
        return (pool, profile) if equals else ("", pool)
