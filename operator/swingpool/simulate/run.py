"""Runs one policy after the other on the same traffic, and says how far it is."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from random import Random

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from swingpool.simulate.cluster_file import ClusterFile
from swingpool.simulate.collecting import seldom_collected
from swingpool_control.simulation.cluster import Simulation
from swingpool_control.simulation.outcome import Outcome
from swingpool_control.simulation.policies.unswung import halved, unswung, unswung_tariff
from swingpool_control.simulation.result import Result
from swingpool_control.simulation.settings import Settings
from swingpool_control.simulation.traffic import Arrival

EVENTS_AT_ONCE = 5_000
"""Between two looks at the progress."""

SAY_EVERY_S = 10.0
"""Where there is no terminal."""

Told = Callable[[Simulation], None]
Request = Callable[[str, Outcome], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Runs:
    """What was found, by policy, in their order."""

    results: tuple[Result, ...]
    interrupted: bool


def run(
    cluster: ClusterFile,
    policies: tuple[Settings, ...],
    traffic: Callable[[], Iterator[Arrival]],
    *,
    failures_seed: int,
    console: Console,
    request: Request | None,
) -> Runs:
    """Simulate each policy; Ctrl-C ends the one under way and leaves out the rest.

    Args:
        cluster: what to simulate.
        policies: settings, alike but for the policy.
        traffic: makes the requests, anew for each policy.
        failures_seed: of what goes wrong.
        console: where to show the progress.
        request: told of each request that ended, with its policy; None for nobody.

    Raises:
        SimulationError: it cannot be simulated.
        TrafficError: the traffic cannot be used.
    """
    results: list[Result] = []
    for settings in policies:
        name = settings.policy.name
        spec, replicas, tariff = cluster.spec, dict(settings.replicas), settings.tariff
        known = cluster.models
        if not settings.policy.swings:
            tariff = unswung_tariff(spec, tariff)
            known = None if known is None else halved(spec, known)
            spec, replicas = unswung(spec, replicas)
        told = None if request is None else (lambda outcome, name=name: request(name, outcome))
        simulation = Simulation(
            spec,
            traffic(),
            replace(settings, replicas=replicas, tariff=tariff, future=traffic),
            failures=Random(f"failures {failures_seed}"),  # noqa: S311 - reproducible, and no secret
            profile_text=cluster.profile_text,
            known=known,
            ended=told,
        )
        interrupted = False
        with _progress(console, name) as tell, seldom_collected():
            try:
                while simulation.advance(events=EVENTS_AT_ONCE):
                    tell(simulation)
            except KeyboardInterrupt:
                interrupted = True
        results.append(simulation.result())
        if interrupted:
            return Runs(results=tuple(results), interrupted=True)
    return Runs(results=tuple(results), interrupted=False)


@contextmanager
def _progress(console: Console, policy: str) -> Iterator[Told]:
    if not console.is_terminal:
        yield _lines(console, policy)
        return
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(policy)
        yield lambda simulation: progress.update(task, description=_state(policy, simulation))


def _lines(console: Console, policy: str) -> Told:
    said_s = time.monotonic()

    def tell(simulation: Simulation) -> None:
        nonlocal said_s
        if time.monotonic() - said_s >= SAY_EVERY_S:
            said_s = time.monotonic()
            console.print(_state(policy, simulation), highlight=False)

    return tell


def _state(policy: str, simulation: Simulation) -> str:
    return f"{policy}: {simulation.now_s:,.0f} s simulated, {simulation.ended:,} requests ended"
