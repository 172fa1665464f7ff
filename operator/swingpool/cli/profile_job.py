"""`swingpool profile measure --job`: the same, from within the cluster."""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from swingpool.cli import profile_table
from swingpool.kube import Kube, KubeError
from swingpool.profiling import in_cluster, job
from swingpool.profiling.job import JobOptions
from swingpool.profiling.target import find
from swingpool.profiling.wire import WorkerError
from swingpool_control.engine.profile import Profile

FORWARDED = {
    "products": "--accelerator",
    "count": "--count",
    "tensor_parallel_size": "--tensor-parallel-size",
    "kv_bytes_per_token": "--kv-bytes-per-token",
    "max_batched_tokens": "--max-batched-tokens",
    "max_sequences": "--max-sequences",
    "max_prompt_tokens": "--max-prompt-tokens",
    "tolerance": "--tolerance",
    "least_repeats": "--least-repeats",
    "pause_s": "--pause",
    "timeout_s": "--timeout-s",
    "wait_s": "--wait",
    "name": "--name",
    "seed": "--seed",
}
"""Options of the command that its Job is given too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobAsked:
    """What was asked about the Job."""

    name: str
    namespace: str
    image: str
    deadline_s: int
    pull_secrets: tuple[str, ...]
    config_map: str | None
    only_print: bool


def run(asked: JobAsked, worker: str, pair: str | None, options: Mapping[str, Any], output: Path) -> None:
    """Make the Job, follow it and write the profile; or print what would be made."""
    try:
        profile = asyncio.run(_run(asked, worker, pair, options))
    except (WorkerError, KubeError, OSError, ValueError) as error:
        raise click.ClickException(str(error)) from error
    if profile is None:
        return
    output.write_text(profile.model_dump_json(indent=2, exclude_none=True) + "\n", encoding="utf-8")
    click.echo("\n".join(profile_table.lines(profile)))
    click.echo(f"\nwritten to {output}")


async def _run(asked: JobAsked, worker: str, pair: str | None, options: Mapping[str, Any]) -> Profile | None:
    target = await find(worker, namespace=asked.namespace)
    other = await find(pair, namespace=asked.namespace) if pair else None
    startup_s = target.startup_s if options.get("startup_s") is None else options["startup_s"]
    made = JobOptions(
        name=asked.name,
        namespace=asked.namespace,
        image=asked.image,
        deadline_s=asked.deadline_s,
        pull_secrets=asked.pull_secrets,
        arguments=(
            target.url,
            *(() if other is None else ("--pair", other.url)),
            *(() if startup_s is None else ("--startup-s", f"{startup_s:g}")),
            *forwarded(options),
        ),
    )
    if asked.only_print:
        items = list(job.manifests(made))
        click.echo(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}, indent=2))
        return None
    async with Kube.load() as kube:
        return await in_cluster.measure(
            kube, made, config_map=asked.config_map, say=lambda line: click.echo(line, err=True)
        )


def forwarded(options: Mapping[str, Any]) -> list[str]:
    """Return options as the Job's command line has them."""
    found: list[str] = []
    for key, flag in FORWARDED.items():
        value = options.get(key)
        for one in value if isinstance(value, tuple) else (value,):
            if one is not None:
                found += [flag, f"{one:g}" if isinstance(one, float) else str(one)]
    return found
