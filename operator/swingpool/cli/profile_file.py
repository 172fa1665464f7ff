"""What the commands that make profiles share: first principles if they are known, and the file."""

import re
from pathlib import Path

import click

from swingpool.cli import profile_table
from swingpool_control.engine import facts, roofline
from swingpool_control.engine.linear import StepCost
from swingpool_control.engine.profile import Power, Profile, ProfileError

WEIGHT_BYTES = {"bf16": 2.0, "fp8": 1.0}


def check(output: Path, *, force: bool) -> None:
    """Refuse to overwrite a file, before anything is computed.

    Raises:
        click.ClickException: it exists, and `force` is not given.
    """
    if output.exists() and not force:
        raise _exists(output)


def save(profile: Profile, output: Path, *, force: bool) -> None:
    """Write a profile and show it.

    Raises:
        click.ClickException: the file exists, or cannot be written.
    """
    text = profile.model_dump_json(indent=2, exclude_none=True) + "\n"
    try:
        with output.open("w" if force else "x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError as error:
        raise _exists(output) from error
    except OSError as error:
        raise click.ClickException(f"cannot write {output}: {error.strerror}") from error
    click.echo("\n".join(profile_table.lines(profile)))
    click.echo(f"\nwritten to {output}")


def first_principles(model: str, product: str, size: int, weight_bytes: float) -> StepCost | None:
    """Return the roofline's coefficients, or None if the model's shape or the accelerator is not known."""
    full = re.sub(r"-fp8.*$", "", model, flags=re.IGNORECASE)  # the same arithmetic in fewer bits
    try:
        shape, accelerator = facts.shape(full), facts.accelerator(product)
    except ProfileError:
        return None
    return roofline.step_cost(shape, accelerator, tensor_parallel_size=size, weight_bytes=weight_bytes)


def power(product: str, count: int) -> Power | None:
    """Return what a worker of so many accelerators draws, or None if the accelerator or its power is not known."""
    try:
        return facts.accelerator(product).power(count)
    except ProfileError:
        return None


def _exists(output: Path) -> click.ClickException:
    return click.ClickException(f"{output} exists; --force overwrites it")
