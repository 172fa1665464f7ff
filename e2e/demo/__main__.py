"""`python -m e2e.demo`: the demo from a bare machine to a report, and back."""

import sys
import time

import click
from rich.console import Console
from rich.text import Text

from e2e.cluster.interface import ClusterError
from e2e.demo.live import clock
from e2e.demo.run import OUT, demo
from e2e.load.background import LoadError
from e2e.system.session import explain, session
from e2e.system.waiting import NotInTimeError

FAILED, INTERRUPTED = 1, 130


@click.command(help=__doc__)
@click.option("--keep", is_flag=True, help="Leave the cluster running at the end, whatever happened.")
@click.option("--plain", is_flag=True, help="Write lines instead of drawing, as happens without a terminal.")
def main(keep: bool, plain: bool) -> None:
    """Run the demo."""
    console = Console(force_terminal=False if plain else None)
    begin = time.monotonic()

    def say(line: str) -> None:
        console.print(Text.assemble((clock(time.monotonic() - begin), "grey62"), f"  {line}"), soft_wrap=True)

    held = False
    try:
        with session(keep=keep, diagnostics=OUT / "diagnostics", say=say) as system:
            held = demo(system, console, say)
            if not held:
                explain(system.cluster, OUT / "diagnostics", say)
    except KeyboardInterrupt:
        say("interrupted")
        sys.exit(INTERRUPTED)
    except (ClusterError, LoadError, NotInTimeError) as error:
        console.print(Text(f"the demo failed: {error}", "bold red"), soft_wrap=True)
        sys.exit(FAILED)
    say("done" if held else "done, but not all that must hold does")
    sys.exit(0 if held else FAILED)


if __name__ == "__main__":
    main()
