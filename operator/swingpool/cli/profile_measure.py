"""`swingpool profile measure`: make a profile of a live worker."""

import asyncio
from dataclasses import dataclass
from pathlib import Path
from random import Random

import aiohttp
import click

from swingpool.cli import profile_file, profile_table
from swingpool.profiling import estimate, worker_facts
from swingpool.profiling.journal import Journal, JournalError
from swingpool.profiling.plan import Bounds, points
from swingpool.profiling.points import PAUSE_S, Sampler
from swingpool.profiling.session import BusyError, run
from swingpool.profiling.target import find
from swingpool.profiling.wire import WorkerClient, WorkerError
from swingpool.profiling.worker_facts import WorkerFacts

STANDARD_OUTPUT = Path("-")
Positive = click.FloatRange(min=0, min_open=True)
NotNegative = click.FloatRange(min=0)
Count = click.IntRange(min=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """What the command was told."""

    worker: str
    pair: str | None
    namespace: str
    max_sequences: int
    max_prompt_tokens: int
    max_batched_tokens: int
    tolerance: float
    least_repeats: int
    pause_s: float
    timeout_s: float
    wait_s: float
    journal: Path


@click.command("measure")
@click.argument("worker", metavar="URL|pod/NAME")
@click.option("--pair", metavar="URL|pod/NAME", help="A second worker, to time how KV cache moves to it.")
@click.option("-n", "--namespace", default="default", show_default=True, help="Of pods.")
@click.option("--accelerator", "products", multiple=True, required=True, help="Product label. May be repeated.")
@click.option("--count", type=Count, default=1, show_default=True, help="Accelerators of the worker.")
@click.option("--tensor-parallel-size", type=Count, default=1, show_default=True)
@click.option("--kv-bytes-per-token", type=Positive, required=True, help="Over all layers and accelerators.")
@click.option(
    "--startup-s", type=click.FloatRange(min=0), help="From a pod's creation to serving; assumed 120 if not said."
)
@click.option(
    "--max-batched-tokens", type=Count, default=8192, show_default=True, help="The worker's token budget per iteration."
)
@click.option(
    "--max-sequences", type=Count, default=32, show_default=True, help="Most sequences at a time that are sent to it."
)
@click.option(
    "--max-prompt-tokens", type=Count, default=8192, show_default=True, help="Longest prompt that is sent to it."
)
@click.option(
    "--tolerance",
    type=click.FloatRange(min=0.001, max=0.5),
    default=estimate.TOLERANCE,
    show_default=True,
    help="Half the 95 % interval at which a point is measured often enough.",
)
@click.option("--least-repeats", type=Count, default=estimate.LEAST_REPEATS, show_default=True, help="Of a point.")
@click.option(
    "--pause",
    "pause_s",
    type=click.FloatRange(min=0),
    default=PAUSE_S,
    show_default=True,
    help="Most seconds of idleness before each sample; drawn anew, as between a worker's requests.",
)
@click.option("--timeout-s", type=Positive, default=120.0, show_default=True, help="For one request.")
@click.option(
    "--wait",
    "wait_s",
    type=click.FloatRange(min=0),
    default=60.0,
    show_default=True,
    help="For others' requests to end.",
)
@click.option("--journal", type=click.Path(dir_okay=False, path_type=Path), help="Default: beside the profile.")
@click.option("--name", help="The profile's name. Default: from model and accelerator.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of the prompts, and of the error's halves.")
@click.option(
    "-o", "--output", required=True, type=click.Path(dir_okay=False, allow_dash=True, path_type=Path),
    help="File to write; - for the profile alone on standard output, in one line.",
)  # fmt: skip
@click.option("--force", is_flag=True, help="Overwrite the profile if it exists; the journal is kept.")
@click.option("--job", "as_job", is_flag=True, help="Measure from a Job within the cluster, and fetch the profile.")
@click.option("--image", help="Of the Job: Swingpool's.")
@click.option("--job-name", default="swingpool-profile", show_default=True, help="Of the Job and its ServiceAccount.")
@click.option("--job-deadline-s", type=Count, default=7200, show_default=True, help="The longest that the Job may run.")
@click.option("--image-pull-secret", "pull_secrets", multiple=True, help="Of the Job. May be repeated.")
@click.option("--config-map", help="With --job: a ConfigMap to write the profile into as well.")
@click.option("--print-job", is_flag=True, help="With --job: print what would be made, and make nothing.")
@click.pass_context
def command(
    context: click.Context,
    /,
    *,
    worker: str,
    pair: str | None,
    namespace: str,
    products: tuple[str, ...],
    count: int,
    tensor_parallel_size: int,
    kv_bytes_per_token: float,
    startup_s: float | None,
    max_batched_tokens: int,
    max_sequences: int,
    max_prompt_tokens: int,
    tolerance: float,
    least_repeats: int,
    pause_s: float,
    timeout_s: float,
    wait_s: float,
    journal: Path | None,
    name: str | None,
    seed: int,
    output: Path,
    force: bool,
    as_job: bool,
    image: str | None,
    job_name: str,
    job_deadline_s: int,
    pull_secrets: tuple[str, ...],
    config_map: str | None,
    print_job: bool,
) -> None:
    """Measure a worker, and write its profile.

    It sends bounded load, waits while others use the worker, stops at the first error, and goes on where it was when it
    is started again. Beside the profile it writes its journal and a page of fit against points.
    """
    from swingpool.profiling import finish

    if output != STANDARD_OUTPUT:
        profile_file.check(output, force=force)
    if as_job:
        if image is None:
            raise click.UsageError("--job needs --image: the Swingpool image that the cluster can pull")
        from swingpool.cli import profile_job

        job = profile_job.JobAsked(
            name=job_name,
            namespace=namespace,
            image=image,
            deadline_s=job_deadline_s,
            pull_secrets=pull_secrets,
            config_map=config_map,
            only_print=print_job,
        )
        profile_job.run(job, worker, pair, context.params, output)
        return
    if output == STANDARD_OUTPUT and journal is None:
        raise click.UsageError("-o - needs --journal: there is no file to keep it beside")
    asked = _Asked(
        worker=worker,
        pair=pair,
        namespace=namespace,
        max_sequences=max_sequences,
        max_prompt_tokens=max_prompt_tokens,
        max_batched_tokens=max_batched_tokens,
        tolerance=tolerance,
        least_repeats=least_repeats,
        pause_s=pause_s,
        timeout_s=timeout_s,
        wait_s=wait_s,
        journal=journal or output.with_suffix(".journal.jsonl"),
    )
    try:
        facts, kept, seen_startup_s = asyncio.run(_measure(asked, seed))
        profile = finish.profile(
            kept.samples,
            facts,
            finish.Described(
                products=products,
                accelerators=count,
                tensor_parallel_size=tensor_parallel_size,
                kv_bytes_per_token=kv_bytes_per_token,
                startup_s=seen_startup_s if startup_s is None else startup_s,
                max_batched_tokens=max_batched_tokens,
                name=name,
                seed=seed,
            ),
            gaps_s=kept.gaps_s.values(),
        )
        if output == STANDARD_OUTPUT:
            click.echo(profile.model_dump_json(exclude_none=True))
            return
        output.write_text(profile.model_dump_json(indent=2, exclude_none=True) + "\n", encoding="utf-8")
        page = output.with_suffix(".html")
        finish.plot(page, profile, kept.samples, facts, max_batched_tokens=max_batched_tokens)
    except (WorkerError, BusyError, JournalError, OSError, ValueError) as error:
        raise click.ClickException(str(error)) from error
    click.echo("\n".join(profile_table.lines(profile)))
    click.echo(f"\nwritten to {output}; fit against points in {page}")


async def _measure(asked: _Asked, seed: int) -> tuple[WorkerFacts, Journal, float | None]:
    """Return what the worker is, what was measured, and its start-up if that can be seen."""
    target = await find(asked.worker, namespace=asked.namespace)
    pair = await find(asked.pair, namespace=asked.namespace) if asked.pair else None
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        unnamed = WorkerClient(session, target.url, "", timeout_s=asked.timeout_s)
        model = await worker_facts.first_model(unnamed)
        worker = WorkerClient(session, target.url, model, timeout_s=asked.timeout_s)
        other = WorkerClient(session, pair.url, model, timeout_s=asked.timeout_s) if pair else None
        facts = await worker_facts.read(worker, model)
        bounds = Bounds(
            longest=facts.longest,
            kv_capacity_tokens=facts.kv_capacity_tokens,
            max_batched_tokens=asked.max_batched_tokens,
            max_sequences=asked.max_sequences,
            max_prompt_tokens=asked.max_prompt_tokens,
        )
        about = {"model": facts.model, "version": facts.version, "settings": dict(facts.settings)}
        journal = Journal(asked.journal, about | {"max_batched_tokens": asked.max_batched_tokens})
        click.echo(f"{facts.model} on vLLM {facts.version}, {facts.kv_capacity_tokens} tokens of KV cache", err=True)
        random = Random(f"prompts {seed} {len(journal.samples)}")  # noqa: S311 - no secret
        await run(
            points(bounds, pair=other is not None),
            Sampler(worker, other, random, pause_s=asked.pause_s),
            journal,
            worker=worker,
            say=lambda line: click.echo(line, err=True),
            wait_s=asked.wait_s,
            tolerance=asked.tolerance,
            least_repeats=asked.least_repeats,
        )
        return facts, journal, target.startup_s
