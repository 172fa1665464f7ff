"""`swingpool compile`: faster simulations and plans, and a faster picker."""

import click

from swingpool.compiled import core

HELP = """Compile what simulations and plans, or what the picker's requests go through.

It needs a C compiler and mypy (pip install 'swingpool[compiled]'), and takes a minute or two for each part. `swingpool
simulate` and `plan`, or `swingpool picker`, then take what was compiled by themselves, as long as it was made from the
very sources that are installed; results are the same. SWINGPOOL_CORE=python keeps to plain Python; SWINGPOOL_CACHE says
where it lies (default: ~/.cache/swingpool).
"""


@click.command("compile", help=HELP)
@click.argument("part", type=click.Choice(list(core.PARTS)), default=core.SIMULATION.name)
def command(part: str) -> None:
    """Compile, and say where the result lies."""
    try:
        click.echo(core.build(core.sources(), core.cache(), core.PARTS[part]))
    except (core.NotCompiledError, OSError) as error:
        raise click.ClickException(str(error)) from error
