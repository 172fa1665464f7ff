"""`swingpool worker`: a simulated vLLM. Its arguments are vLLM's own, read by the worker itself."""

import click
import uvloop

from swingpool.telemetry.logs import configure
from swingpool.worker import options, process
from swingpool_control.engine.profile import ProfileError


@click.command(
    "worker",
    add_help_option=False,
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    help="Run a simulated vLLM worker.",
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def command(arguments: tuple[str, ...]) -> None:
    """Run a simulated vLLM worker until SIGTERM."""
    configure()
    try:
        parsed = options.parse(arguments)
    except (options.OptionError, ProfileError) as error:
        raise click.ClickException(str(error)) from error
    try:
        uvloop.run(process.serve(parsed))
    except OSError as error:
        raise click.ClickException(f"cannot listen: {error}") from error
