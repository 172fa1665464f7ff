"""The demo, step by step."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from e2e.demo import story
from e2e.demo.live import PlainView, TerminalView, View
from e2e.demo.moments import Flip, Objective, Watch, objectives
from e2e.demo.report import Outcome, bars, show, write
from e2e.demo.timeline import Story, draw
from e2e.load.background import Load
from e2e.load.record import Record
from e2e.system.install import ROOT, System
from e2e.system.router import wait_serving
from e2e.system.waiting import steadily

OUT = ROOT / "build" / "demo"
LOOK_S = 1.0
SETTLE_S = 10.0
"""How long after the last answer a flip may still wait for its first request."""


@dataclass(frozen=True, slots=True)
class Shown:
    """What the load showed."""

    records: list[Record]
    watch: Watch
    lost_workers: int


def demo(system: System, console: Console, say: Callable[[str], None]) -> bool:
    """Apply the sample, send the load, report; return whether every bar held."""
    say("applying the sample: 1 prefill, 1 decode and 2 swing workers")
    system.fresh_namespace(story.NAMESPACE)
    manifest = (Path(__file__).parent / "sample.yaml").read_text()
    system.cluster.kubectl(
        "apply", "--server-side", "--validate=strict", "--namespace", story.NAMESPACE, "-f", "-", stdin=manifest
    )
    system.wait_ready(story.NAMESPACE, story.CLUSTER)
    url = wait_serving(system, story.NAMESPACE, story.CLUSTER)
    found = steadily(lambda: system.kube.inference_cluster(namespace=story.NAMESPACE, name=story.CLUSTER))
    asked = objectives(found["spec"])
    say(f"serving at {url}; sending {len(story.phases())} phases of load, {story.plan(url).seconds:.0f} s in all")
    seen = _load(system, url, asked, console)
    outcome = Outcome(
        server_version=system.cluster.server_version(),
        provider=system.cluster.name,
        records=seen.records,
        flips=seen.watch.flips_in_order(),
        restarts=steadily(system.restarts) + seen.lost_workers,
        objectives=asked,
    )
    write(outcome, OUT / "report.json")
    draw(Story(outcome=outcome, phases=story.phases(), moments=seen.watch.moments), OUT / "timeline.png")
    console.print()
    show(outcome, console)
    say(f"wrote {_short(OUT / 'report.json')} and {_short(OUT / 'timeline.png')}")
    broken = [bar for bar in bars(outcome) if not bar.holds]
    for bar in broken:
        console.print(f"[bold red]does not hold:[/bold red] {bar.name} is {bar.value}, must be {bar.limit}")
    return not broken


def _load(system: System, url: str, asked: tuple[Objective, ...], console: Console) -> Shown:
    before = _workers(system)
    with Load(story.plan(url), OUT / "load") as load:
        watch = Watch(kube=system.kube, namespace=story.NAMESPACE, cluster=story.CLUSTER, load=load)
        with _view(console, asked, system) as view:
            while load.running:
                _look(watch, view)
            end = time.monotonic() + SETTLE_S
            while time.monotonic() < end and _unfinished(watch.flips_in_order()):
                _look(watch, view)
        records = load.wait()
    return Shown(records, watch, lost_workers=len(before - _workers(system)))


def _workers(system: System) -> set[str]:
    """Return the uids of the workers."""
    found = steadily(lambda: system.kube.workers(namespace=story.NAMESPACE, cluster=story.CLUSTER))
    return {pod.uid for pod in found}


def _look(watch: Watch, view: View) -> None:
    begin = time.monotonic()
    if watch.look() is not None:
        view.show(watch)
    time.sleep(max(0.05, LOOK_S - (time.monotonic() - begin)))


def _unfinished(flips: list[Flip]) -> bool:
    return any(flip.outcome == "InProgress" for flip in flips)


def _view(console: Console, asked: tuple[Objective, ...], system: System) -> View:
    if not console.is_terminal:
        return PlainView(console, asked)
    title = f"Swingpool · {story.CLUSTER} · Kubernetes {system.cluster.server_version()} ({system.cluster.name})"
    return TerminalView(console, asked, story.phases(), title)


def _short(path: Path) -> str:
    return str(path.relative_to(ROOT))
