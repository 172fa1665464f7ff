"""`python -m e2e.vllm [--quick] [NAME...]`: what is claimed about vLLM, checked on real vLLM servers."""

import asyncio
import dataclasses
import json
import shutil
import signal
import sys
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import Any

import click
from rich.console import Console
from rich.text import Text

from e2e.cluster.interface import ClusterError, Progress
from e2e.cluster.paths import ROOT
from e2e.system.session import session
from e2e.system.waiting import NotInTimeError
from e2e.vllm import environment as environments
from e2e.vllm import kubernetes as pods
from e2e.vllm.checks import contract, deaths, events, exact, limits, sleep, upgrade
from e2e.vllm.environment import VLLMEnvironment
from e2e.vllm.finding import Finding
from e2e.vllm.server import NIXL, ServerError, ServerOptions
from e2e.vllm.stand import Stand

OUT = ROOT / "build" / "vllm"
WORKERS = ("w0", "w1", "w2")
SMALL = "small"
INTERRUPTED = 130
Check = Callable[[Stand, bool], Coroutine[Any, Any, list[Finding]]]


async def _contract(stand: Stand, quick: bool) -> list[Finding]:
    del quick
    return await asyncio.to_thread(contract.check, stand, WORKERS[0], WORKERS[1])


async def _sleep(stand: Stand, quick: bool) -> list[Finding]:
    del quick
    return await sleep.check(stand, worker=WORKERS[0], start_s=stand.started_s)


async def _exact(stand: Stand, quick: bool) -> list[Finding]:
    return await exact.check(stand, exact.QUICK if quick else exact.FULL, WORKERS)


async def _stopped(stand: Stand, quick: bool) -> list[Finding]:
    del quick
    return await deaths.stopped(stand, prefill=WORKERS[0], decode=WORKERS[1], hung=WORKERS[2])


async def _limits(stand: Stand, quick: bool) -> list[Finding]:
    del quick
    await asyncio.to_thread(_start_small, stand)
    return await limits.check(stand, small=SMALL, other=WORKERS[1])


async def _killed(stand: Stand, quick: bool) -> list[Finding]:
    del quick
    if SMALL not in stand.servers:
        await asyncio.to_thread(_start_small, stand)
    return await deaths.killed(stand, prefill=SMALL, known=WORKERS[1], fresh=WORKERS[2])


async def _events(stand: Stand, quick: bool) -> list[Finding]:
    del quick
    try:
        return await events.check(stand)
    finally:
        await asyncio.to_thread(stand.stop, events.NAME)  # memory


async def _upgrade(stand: Stand, quick: bool) -> list[Finding]:
    del quick
    await asyncio.to_thread(stand.stop, *(name for name in stand.servers if name not in WORKERS[:2]))  # memory
    return await upgrade.check(stand, old=(WORKERS[0], WORKERS[1]), new=("n0", "n1"))


def _start_small(stand: Stand) -> None:
    connector = {**NIXL, "kv_connector_extra_config": {"kv_lease_duration": limits.LEASE_S}}
    stand.start(ServerOptions(name=SMALL, connector=connector, blocks=limits.BLOCKS, longest=limits.LONGEST))


CHECKS: dict[str, Check] = {
    "contract": _contract,
    "sleep": _sleep,
    "exact": _exact,
    "stopped": _stopped,
    "limits": _limits,
    "events": _events,
    "killed": _killed,
    "upgrade": _upgrade,
}
"""In the order in which they can follow one another: each leaves the workers that the next one needs."""

QUICK = ("exact",)

ALONE = ("events",)
"""Checks that need none of them."""


@click.command(help=__doc__)
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--quick", is_flag=True, help="A short slice.")
@click.option("--kubernetes", is_flag=True, help="In pods of a real Kubernetes instead, flipped by the manager.")
@click.option("--install", "only_install", is_flag=True, help="Install vLLM and make the model, and do nothing else.")
def main(names: tuple[str, ...], quick: bool, kubernetes: bool, only_install: bool) -> None:
    """Run the checks."""
    unknown = [name for name in names if name not in CHECKS]
    if unknown:
        raise click.UsageError(f"unknown: {', '.join(unknown)}; there are {', '.join(CHECKS)}")
    console = Console()
    begin_s = time.monotonic()

    def say(line: str) -> None:
        console.print(Text(f"{time.monotonic() - begin_s:5.0f} s  {line}"), soft_wrap=True)

    findings: list[Finding] = []
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(INTERRUPTED))  # so that the servers end too
    try:
        environment = environments.environment(say)
        if only_install:
            return
        shutil.rmtree(OUT, ignore_errors=True)
        OUT.mkdir(parents=True)
        chosen = names or (QUICK if quick else tuple(CHECKS))
        for finding in _in_pods(environment, say) if kubernetes else _here(environment, chosen, quick=quick, say=say):
            findings.append(finding)
            _show(console, finding)
    except (environments.EnvironmentError, ServerError, ClusterError, NotInTimeError) as error:
        console.print(Text(str(error), "bold red"), soft_wrap=True)
        sys.exit(1)
    finally:
        if findings:
            (OUT / "report.json").write_text(json.dumps([dataclasses.asdict(one) for one in findings], indent=1))
    say("done")
    sys.exit(0 if all(finding.holds for finding in findings) else 1)


def _here(environment: VLLMEnvironment, names: Sequence[str], *, quick: bool, say: Progress) -> Iterator[Finding]:
    """Yield what is found with Envoy, the picker and three servers on loopback."""
    with Stand(environment, OUT, say) as stand:
        if any(name not in ALONE for name in names):
            stand.start(*(ServerOptions(name=name) for name in WORKERS))
        for name in names:
            say(f"check {name}")
            yield from asyncio.run(CHECKS[name](stand, quick))


def _in_pods(environment: VLLMEnvironment, say: Progress) -> Iterator[Finding]:
    """Yield what is found on a real Kubernetes."""
    with session(keep=False, diagnostics=OUT / "diagnostics", say=say) as system:
        yield from pods.check(system, environment, image=system.image, directory=OUT, say=say)


def _show(console: Console, finding: Finding) -> None:
    mark, style = ("holds", "green") if finding.holds else ("FAILS", "bold red")
    console.print(Text(f"{mark}: {finding.claim}", style), soft_wrap=True)
    figures = ", ".join(f"{name} {value:g}" for name, value in finding.figures.items())
    console.print(Text(f"       {figures}"), soft_wrap=True)
    for note in finding.notes:
        console.print(Text(f"       {note}", "yellow"), soft_wrap=True)


if __name__ == "__main__":
    main()
