"""`swingpool plan`: how many workers of what for a traffic, checked by simulation, as an InferenceCluster to apply."""

import sys
from collections.abc import Iterator
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from swingpool.plan import rows
from swingpool.plan.manifest import manifest
from swingpool.plan.offer import Offer, read
from swingpool.plan.run import Plan, Planner
from swingpool.simulate import cluster_file, output
from swingpool.simulate.parameters import FILE, POSITIVE, Duration, PoolProfile
from swingpool.traffic.lines import TrafficError
from swingpool.traffic.read import FORMATS, Scaling, detect, tells_prefixes
from swingpool.traffic.read import read as read_traffic
from swingpool.traffic.synthetic import Seeds
from swingpool_control.planning.mix import PlanError
from swingpool_control.simulation.cluster import SimulationError
from swingpool_control.simulation.settings import Settings
from swingpool_control.simulation.traffic import Arrival

NOTHING_HOLDS = 3

HELP = """Plan the cheapest workers that hold the objectives under a traffic.

What is on offer stands in an InferenceCluster: one pool for each accelerator type and engine layout, with costPerHour
and, as replicas.max, the most workers that there could be. Give pools the role Swing unless their workers shall have
only one role. Objectives and budgets are the cluster's own:

\b
  apiVersion: swingpool.dev/v1alpha1
  kind: InferenceCluster
  metadata: {name: chat}
  spec:
    model: {name: Qwen/Qwen3-32B}
    objectives: {ttft: {p95: 1s}, itl: {p95: 40ms}}
    pools:
    - {name: h200, role: Swing, accelerator: {product: NVIDIA-H200}, costPerHour: "3.50", replicas: {max: 16}}
    - {name: l40s, role: Swing, accelerator: {product: NVIDIA-L40S}, costPerHour: "1.10", replicas: {max: 16}}

The mix that the formulas find is simulated with the traffic itself: a worker is added where it does not hold, taken
away where it still does. Shown besides: what was simulated, serving without disaggregation, other rates and prices,
the same latencies at p50 only. The InferenceCluster to apply goes to --output. Traffic is read as by `swingpool
simulate`. Exit code 3: nothing on offer holds.
"""


@click.command(help=HELP)
@click.option("-f", "--file", "cluster", type=FILE, required=True, help="What is on offer; see above.")
@click.option("--traffic", type=FILE, required=True, help="A trace, or a description of a load.")
@click.option("--format", "kind", type=click.Choice(FORMATS), help="Format of the traffic. Default: found out.")
@click.option(
    "--profile", "profiles", type=PoolProfile(), multiple=True, help="Performance profile of all pools, or of one."
)
@click.option("--startup", type=Duration(), help="A new worker's start-up, such as 60s. Default: the profile's.")
@click.option("--rate", type=POSITIVE, default=1.0, help="Requests for each one of the traffic's: 2 doubles the load.")
@click.option("--until", type=Duration(), help="Leave out what arrives later than this, such as 10m.")
@click.option("--limit", type=click.IntRange(min=1), help="Take at most so many requests.")
@click.option("--seed", type=int, default=1, show_default=True, help="Seed of a described load.")
@click.option("-o", "--output", "yaml_path", type=FILE, help="Write the InferenceCluster here. Default: print it.")
@click.option("--page", "page_path", type=FILE, help="Write a page with plots (HTML, one file) here.")
@click.option("--force", is_flag=True, help="Write over existing files.")
def command(
    *,
    cluster: Path,
    traffic: Path,
    kind: str | None,
    profiles: tuple[tuple[str, str], ...],
    startup: float | None,
    rate: float,
    until: float | None,
    limit: int | None,
    seed: int,
    yaml_path: Path | None,
    page_path: Path | None,
    force: bool,
) -> None:
    """Plan, show, write."""
    seeds = Seeds(arrivals=seed, lengths=seed)
    scaling = Scaling(rate=rate, until_s=until, limit=limit)

    def arrivals() -> Iterator[Arrival]:
        return read_traffic(traffic, format=kind, seeds=seeds, scaling=scaling)

    try:
        for path in (yaml_path, page_path):
            if path is not None:
                output.check(path, force=force)
        offer = read(cluster, profiles)
        kind = kind or detect(traffic)
        settings = Settings(startup_s=startup, prefix_caching=tells_prefixes(traffic, kind))
        progress = Console(stderr=True)
        found = Planner(offer.spec, offer.models, arrivals, settings=settings, console=progress).plan()
        text = manifest(found, name=offer.name)
        _show(found, offer, traffic.name)
        if yaml_path is not None and text:
            output.write_text(yaml_path, text, force=force)
        elif text:
            click.echo(text)
        if page_path is not None:
            from swingpool.plan.page import page  # plotly takes a while to start

            output.write_text(page_path, page(found, name=offer.name, traffic=traffic.name, manifest=text), force=force)
    except (cluster_file.ClusterFileError, TrafficError, SimulationError, PlanError, output.OutputError) as error:
        raise click.ClickException(str(error)) from error
    if found.chosen is None:
        sys.exit(NOTHING_HOLDS)


def _show(plan: Plan, offer: Offer, traffic: str) -> None:
    console = Console()
    console.print(f"[bold]Plan for {offer.name} under {traffic}[/bold]", highlight=False)
    console.print(rows.verdict(plan), highlight=False)
    for text in (*rows.reasons(plan), rows.shrinks(plan)):
        if text:
            console.print(f"  {text}", highlight=False, style="dim")
    for title, header, lines in (
        ("Simulated", rows.CHECKS, rows.checks(plan)),
        ("With other rates (formulas)", rows.VARIATIONS, rows.rates(plan)),
        ("Otherwise (formulas)", rows.VARIATIONS, rows.others(plan)),
    ):
        table = Table(title=title, title_justify="left", title_style="bold")
        for number, name in enumerate(header):
            table.add_column(name, justify="left" if number < 2 else "right", overflow="fold")
        for line in lines:
            table.add_row(*line)
        console.print(table)
