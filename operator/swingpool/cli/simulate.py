"""`swingpool simulate`: what the live manager would have done with this traffic."""

import math
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import click
from rich.console import Console

from swingpool.plan import offer
from swingpool.simulate import cluster_file, output, tariff_file
from swingpool.simulate.parameters import FILE, POSITIVE, Duration, PoolProfile, Replicas
from swingpool.simulate.run import Runs, run
from swingpool.simulate.table import table
from swingpool.traffic.jsonl import BLOCK_TOKENS
from swingpool.traffic.lines import TrafficError
from swingpool.traffic.read import FORMATS, Scaling, detect, read, tells_prefixes
from swingpool.traffic.synthetic import Seeds
from swingpool_control.simulation.cluster import SimulationError
from swingpool_control.simulation.policies.catalogue import POLICIES
from swingpool_control.simulation.settings import Failures, Settings
from swingpool_control.simulation.traffic import Arrival

INTERRUPTED = 130


def _policies() -> str:
    """The policies with what they do, wrapped for the help page."""
    width = max(map(len, POLICIES)) + 4
    lines = []
    for policy in POLICIES.values():
        indented = textwrap.wrap(policy.about, 78 - width)
        lines += [f"  {policy.name:{width - 2}}{indented[0]}", *(" " * width + line for line in indented[1:])]
    return "\n".join(lines)


HELP = f"""Simulate an InferenceCluster under a load: what its manager would do, and what others would.

The cluster is the file that one would apply. The simplest run, and two policies side by side with a page of plots:

\b
  swingpool simulate -f cluster.yaml --traffic load.yaml
  swingpool simulate -f cluster.yaml --traffic trace.csv --policy ours --policy keda-slo --page found.html

TRAFFIC is read as a stream, plain or gzipped, and may be larger than memory. Its format is found out:

\b
  azure         CSV with TIMESTAMP, ContextTokens, GeneratedTokens
  mooncake      JSON lines with timestamp (milliseconds), input_length, output_length, hash_ids
  dynamo        the same, hash_ids optional
  vllm-result   what `vllm bench serve --save-result --save-detailed` writes
  vllm-dataset  JSON lines with prompt and output_tokens; one a second: --time 0.1 makes it ten
  log           JSON lines with arrived_unix_s, prompt_tokens, output_tokens, as the router's request log has them
  synthetic     a load described in YAML:

\b
  phases:
  - seconds: 300
    requestsPerSecond: 12            # or {{from: 2, to: 20}}
    arrivals: poisson                # or uniform, or {{gamma: 3}}, 3 being the gaps' coefficient of variation
    mix:
    - promptTokens: {{mean: 450, sigma: 0.3}}    # log-normal; or 450, or {{from: 100, to: 900}}
      outputTokens: 60
      sharedPrefix: {{groups: 20, tokens: 1024}}
      class: batch                     # as the spec lists classes; tenant: likewise
      conversation: {{turns: 4, secondsBetween: 30}}    # each turn's prompt holds all that was said before
  repeat: 3

POLICIES, each with the same traffic and the same start; those that know no swing pools get halves of them:

\b
{_policies()}

Ctrl-C ends the simulation and shows, and writes, what was found until then.
"""


@click.command(help=HELP)
@click.option("-f", "--file", "cluster", type=FILE, required=True, help="The InferenceCluster, as one would apply it.")
@click.option("--traffic", type=FILE, required=True, help="A trace, or a description of a load; see above.")
@click.option("--format", "kind", type=click.Choice(FORMATS), help="Format of the traffic. Default: found out.")
@click.option(
    "--policy",
    "policies",
    type=click.Choice(tuple(POLICIES)),
    multiple=True,
    default=("ours",),
    show_default=True,
    help="Who decides; see above. Give it several times for a table side by side.",
)
@click.option(
    "--profile",
    "profiles",
    type=PoolProfile(),
    multiple=True,
    help="Performance profile of all pools, or of one. Default: as the spec says.",
)
@click.option(
    "--replicas", type=Replicas(), multiple=True, help="Workers at the start. Default: replicas.min or count."
)
@click.option("--startup", type=Duration(), help="A new worker's start-up, such as 60s. Default: the profile's.")
@click.option("--rate", type=POSITIVE, default=1.0, help="Requests for each one of the traffic's: 2 doubles the load.")
@click.option("--time", "stretch", type=POSITIVE, default=1.0, help="Seconds for each one of the traffic's.")
@click.option("--until", type=Duration(), help="Leave out what arrives later than this, such as 10m.")
@click.option("--limit", type=click.IntRange(min=1), help="Take at most so many requests.")
@click.option(
    "--block-tokens", type=click.IntRange(min=1), default=BLOCK_TOKENS, help="Tokens under one hash of a trace."
)
@click.option("--crashes", type=click.FloatRange(min=0), default=0.0, help="Crashes per worker and hour.")
@click.option("--hangs", type=click.FloatRange(min=0), default=0.0, help="Hangs of 20 s per worker and hour.")
@click.option("--slow", type=click.FloatRange(min=0), default=0.0, help="Times per worker and hour 3x slow, for 2 min.")
@click.option("--silences", type=click.FloatRange(min=0), default=0.0, help="Minutes without metrics, likewise.")
@click.option("--fabric-links", type=POSITIVE, default=math.inf, help="Workers' links that the network carries.")
@click.option("--transfer-failures", type=click.FloatRange(0, 1), default=0.0, help="Share of KV transfers that fail.")
@click.option("--tariff", "tariff_path", type=FILE, help="Prices, power and carbon over time; see the documentation.")
@click.option("--seed", type=int, default=1, show_default=True, help="Seed of all that is drawn.")
@click.option("--arrivals-seed", type=int, help="Seed of arrivals alone.")
@click.option("--lengths-seed", type=int, help="Seed of lengths alone.")
@click.option("--failures-seed", type=int, help="Seed of failures alone.")
@click.option("--json", "json_path", type=FILE, help="Write what was found here.")
@click.option("--csv", "csv_path", type=FILE, help="Write a line for every request here.")
@click.option("--series", "series_path", type=FILE, help="Write what happened over time here, as CSV.")
@click.option("--page", "page_path", type=FILE, help="Write a page with plots (HTML, one file) here.")
@click.option("--force", is_flag=True, help="Write over existing files.")
def command(
    *,
    cluster: Path,
    traffic: Path,
    kind: str | None,
    policies: tuple[str, ...],
    profiles: tuple[tuple[str, str], ...],
    replicas: tuple[tuple[str, int], ...],
    startup: float | None,
    rate: float,
    stretch: float,
    until: float | None,
    limit: int | None,
    block_tokens: int,
    crashes: float,
    hangs: float,
    slow: float,
    silences: float,
    fabric_links: float,
    transfer_failures: float,
    tariff_path: Path | None,
    seed: int,
    arrivals_seed: int | None,
    lengths_seed: int | None,
    failures_seed: int | None,
    json_path: Path | None,
    csv_path: Path | None,
    series_path: Path | None,
    page_path: Path | None,
    force: bool,
) -> None:
    """Simulate, show, write."""
    settings = Settings(
        failures=Failures(
            crashes_per_worker_hour=crashes,
            hangs_per_worker_hour=hangs,
            slow_per_worker_hour=slow,
            silences_per_worker_hour=silences,
            transfer_share=transfer_failures,
        ),
        fabric_links=fabric_links,
        overload=True,
        replicas=dict(replicas),
        startup_s=startup,
    )
    seeds = Seeds(arrivals=_first(arrivals_seed, seed), lengths=_first(lengths_seed, seed))
    scaling = Scaling(rate=rate, time=stretch, until_s=until, limit=limit)

    def arrivals() -> Iterator[Arrival]:
        return read(traffic, format=kind, block_tokens=block_tokens, seeds=seeds, scaling=scaling)

    try:
        for path in (json_path, csv_path, series_path, page_path):
            if path is not None:
                output.check(path, force=force)
        described = _described(cluster, profiles)
        if tariff_path is not None:
            settings = replace(settings, tariff=tariff_file.read(tariff_path))
        kind = kind or detect(traffic)
        settings = replace(settings, prefix_caching=tells_prefixes(traffic, kind))
        chosen = tuple(replace(settings, policy=POLICIES[name]) for name in dict.fromkeys(policies))
        with output.request_rows(csv_path, force=force) as rows:
            found = run(
                described,
                chosen,
                arrivals,
                failures_seed=_first(failures_seed, seed),
                console=Console(stderr=True),
                request=rows,
            )
        Console().print(table(found.results, title=f"{described.name} under {traffic.name}"))
        if json_path is not None:
            about = {"cluster": described.name, "traffic": traffic.name, "seed": seed}
            output.write_json(json_path, found.results, about=about, force=force)
        if series_path is not None:
            output.write_series(series_path, found.results, force=force)
        if page_path is not None:
            from swingpool.simulate.page import page  # plotly takes a while to start

            text = page(found.results, cluster=described.name, traffic=traffic.name, seed=seed)
            output.write_text(page_path, text, force=force)
    except (
        cluster_file.ClusterFileError,
        TrafficError,
        SimulationError,
        output.OutputError,
        tariff_file.TariffError,
    ) as error:
        raise click.ClickException(str(error)) from error
    _leave(found)


def _described(cluster: Path, profiles: tuple[tuple[str, str], ...]) -> cluster_file.ClusterFile:
    found = cluster_file.read(cluster, profile_of=next((profile for pool, profile in profiles if not pool), None))
    if any(pool for pool, _ in profiles):
        return replace(found, models=offer.read(cluster, profiles).models)
    return found


def _first(given: int | None, otherwise: int) -> int:
    return otherwise if given is None else given


def _leave(found: Runs) -> None:
    if found.interrupted:
        click.echo("broken off: the last column holds what had happened until then", err=True)
        sys.exit(INTERRUPTED)
