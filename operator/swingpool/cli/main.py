"""The command line's entry: one group whose commands are imported when they are asked for.

Commands live in modules of this package and are listed by name here, so that `swingpool worker` does not load kopf.
"""

import importlib

import click

from swingpool.compiled import core

COMMANDS = {
    "compile": "Compile the hot parts, for faster simulations, plans and pickers.",
    "explain": "Say why a cluster is as it is, and make recorded decisions again.",
    "crd": "Print the CustomResourceDefinition.",
    "manager": "Run the manager.",
    "profile": "Make performance profiles, from measurements or first principles, and show them.",
    "picker": "Run the endpoint picker beside Envoy.",
    "plan": "Find the cheapest workers for a traffic, checked by simulation.",
    "simulate": "Simulate a cluster under a load, with the live decisions.",
    "top": "Show workers, roles, queues and the last decisions, live.",
    "worker": "Run a simulated vLLM worker.",
}
"""Command to its one-line help. Each is the click command `command` of the module `swingpool.cli.<command>`."""


COMPILED = {"simulate": core.SIMULATION, "plan": core.SIMULATION, "picker": core.PICKER}
"""Command to the part that it takes compiled, if it was compiled."""


class LazyGroup(click.Group):
    """A group that imports a command's module only to run it."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the commands' names."""
        del ctx
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return a command, or None if there is none of that name."""
        del ctx
        if cmd_name not in COMMANDS:
            return None
        if cmd_name in COMPILED:
            core.use(COMPILED[cmd_name])
        command: click.Command = importlib.import_module(f"swingpool.cli.{cmd_name}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands without importing any."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl(sorted(COMMANDS.items()))


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "auto_envvar_prefix": "SWINGPOOL"})
@click.version_option(package_name="swingpool")
def main() -> None:
    """Elastic prefill/decode pools for vLLM on Kubernetes."""
