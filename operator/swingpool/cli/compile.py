"""`swingpool compile`: a faster core for simulations and plans."""

import click

from swingpool.compiled import core

HELP = """Compile the hot part of the core, for faster simulations and plans.

It needs a C compiler and mypy (pip install 'swingpool[compiled]'), and takes a minute or two. `swingpool simulate` and
`swingpool plan` then take the compiled core by themselves, as long as it was made from the very sources that are
installed; results are the same. SWINGPOOL_CORE=python keeps to plain Python; SWINGPOOL_CACHE says where compiled cores
lie (default: ~/.cache/swingpool).
"""


@click.command("compile", help=HELP)
def command() -> None:
    """Compile, and say where the result lies."""
    try:
        click.echo(core.build(core.sources(), core.cache()))
    except (core.NotCompiledError, OSError) as error:
        raise click.ClickException(str(error)) from error
