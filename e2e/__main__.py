"""`python -m e2e [--quick] [NAME...]`: scenarios on a real cluster, under load."""

import sys
import time

import click
from rich.console import Console
from rich.text import Text

from e2e.cluster.interface import ClusterError
from e2e.scenarios.run import SCENARIOS, UnknownScenarioError, choose, play
from e2e.system.install import ROOT
from e2e.system.session import session
from e2e.system.waiting import NotInTimeError

OUT = ROOT / "build" / "e2e"
FAILED, USAGE, INTERRUPTED = 1, 2, 130


@click.command(help=__doc__)
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--quick", is_flag=True, help="A short slice of all scenarios.")
@click.option("--keep", is_flag=True, help="Leave the cluster running at the end.")
@click.option("--list", "only_list", is_flag=True, help="List the scenarios and do nothing.")
def main(names: tuple[str, ...], quick: bool, keep: bool, only_list: bool) -> None:
    """Run the scenarios."""
    if only_list:
        for scenario in SCENARIOS:
            click.echo(f"{scenario.name:<24}{'quick  ' if scenario.quick else '       '}{scenario.about}")
        return
    console = Console()
    begin = time.monotonic()

    def say(line: str) -> None:
        console.print(Text(f"{time.monotonic() - begin:5.0f} s  {line}"), soft_wrap=True)

    held = False
    try:
        chosen = choose(names, quick=quick)
        for scenario in chosen:
            if scenario.prepare is not None:
                scenario.prepare(say)
        with session(keep=keep, diagnostics=OUT / "diagnostics", say=say) as system:
            held = play(system, chosen, quick=quick, out=OUT, console=console, say=say)
    except UnknownScenarioError as error:
        click.echo(str(error), err=True)
        sys.exit(USAGE)
    except KeyboardInterrupt:
        say("interrupted")
        sys.exit(INTERRUPTED)
    except (ClusterError, NotInTimeError) as error:
        console.print(Text(f"the scenarios could not be played: {error}", "bold red"), soft_wrap=True)
        sys.exit(FAILED)
    sys.exit(0 if held else FAILED)


if __name__ == "__main__":
    main()
