"""Runs a plan from the command line: `python -m e2e.load PLAN.json --records OUT.jsonl`.

A process of its own, so that nothing else that the caller does (drawing, polling) shows in the latencies. It writes one
JSON line a second to standard output and ends early, but in good order, on SIGTERM or SIGINT.
"""

import asyncio
import gc
import json
import signal
import sys
from pathlib import Path
from typing import Any

import click
import uvloop

from e2e.load.plan import Plan, from_json
from e2e.load.record import Record
from e2e.load.runner import Run


def _print(snapshot: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(snapshot) + "\n")
    sys.stdout.flush()


async def _run(plan: Plan) -> list[Record]:
    run = Run(plan)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, run.stopping.set)
    return await run.go(_print)


@click.command(help=__doc__)
@click.argument("plan", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--records", type=click.Path(path_type=Path), required=True, help="Where to write one record a line.")
@click.option("--enter", is_flag=True, help="Send from within the development cluster's network.")
def main(plan: Path, records: Path, enter: bool) -> None:
    """Run a plan."""
    if enter:
        from e2e.cluster import cluster

        cluster().enter()
    gc.freeze()
    found = uvloop.run(_run(from_json(json.loads(plan.read_text()))))
    records.parent.mkdir(parents=True, exist_ok=True)
    with records.open("w") as out:
        out.writelines(json.dumps(record.to_json()) + "\n" for record in found)


if __name__ == "__main__":
    main()
