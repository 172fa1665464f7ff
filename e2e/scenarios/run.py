"""Runs scenarios one after the other on one cluster, and reports."""

import json
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from e2e.scenarios import allswing, calm, changes, clients, explaining, failures, gateways, impossible, routing
from e2e.scenarios.guard import Guard
from e2e.scenarios.scenario import Facts, Scenario
from e2e.scenarios.stage import STAGE_NAMESPACE, Stage
from e2e.system.install import System
from e2e.system.session import explain

SCENARIOS: tuple[Scenario, ...] = (
    *changes.SCENARIOS,
    *explaining.SCENARIOS,
    *failures.SCENARIOS,
    *routing.SCENARIOS,
    *clients.SCENARIOS,
    *gateways.SCENARIOS,
    *impossible.SCENARIOS,
    *allswing.SCENARIOS,
    *calm.SCENARIOS,
)
"""In the order in which they play; the last one takes the stage down."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """How a scenario went."""

    name: str
    about: str
    holds: bool
    seconds: float
    facts: Facts
    error: str


class UnknownScenarioError(ValueError):
    """A name that no scenario has."""


def choose(names: Sequence[str], *, quick: bool) -> list[Scenario]:
    """Return the scenarios that are asked for, in the order in which they play.

    Raises:
        UnknownScenarioError: there is none of that name.
    """
    unknown = set(names) - {scenario.name for scenario in SCENARIOS}
    if unknown:
        known = ", ".join(scenario.name for scenario in SCENARIOS)
        raise UnknownScenarioError(f"no scenario is called {', '.join(sorted(unknown))}; there are {known}")
    if names:
        return [scenario for scenario in SCENARIOS if scenario.name in names]
    return [scenario for scenario in SCENARIOS if scenario.quick or not quick]


def play(
    system: System, chosen: Sequence[Scenario], *, quick: bool, out: Path, console: Console, say: Callable[[str], None]
) -> bool:
    """Play the scenarios, print and write the results, and return whether all of it held."""
    system.fresh_namespace(STAGE_NAMESPACE)
    stage = Stage(system=system, out=out, quick=quick)
    guard = Guard(system.cluster.kubeconfig)
    results = []
    for scenario in chosen:
        say(f"{scenario.name}: {scenario.about}")
        result = _play(stage, scenario)
        results.append(result)
        say(
            f"{scenario.name}: {'holds' if result.holds else 'DOES NOT HOLD: ' + result.error} ({result.seconds:.0f} s)"
        )
        if not result.holds:
            explain(system.cluster, out / "diagnostics" / scenario.name, say)
    guard.stop()
    results.append(_guarded(guard))
    _write(system, results, quick, out / "report.json")
    _show(results, console)
    return all(result.holds for result in results)


def _play(stage: Stage, scenario: Scenario) -> Result:
    begin = time.monotonic()
    facts: Facts = {}
    error = ""
    try:
        stage.settle()
        facts = scenario.run(stage)
    except Exception as failure:
        error = f"{type(failure).__name__}: {failure}"
        stage.out.mkdir(parents=True, exist_ok=True)
        (stage.out / f"{scenario.name}.traceback").write_text(traceback.format_exc())
    return Result(
        name=scenario.name, about=scenario.about, holds=not error, seconds=round(time.monotonic() - begin, 1),
        facts=facts, error=error,
    )  # fmt: skip


def _guarded(guard: Guard) -> Result:
    return Result(
        name="role-guard",
        about="in all of the above, no change of role took the last ready prefill or decode worker",
        holds=not guard.faults,
        seconds=0.0,
        facts={"changes_of_role": guard.changes},
        error="; ".join(guard.faults),
    )


def _write(system: System, results: Sequence[Result], quick: bool, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    report = {
        "kubernetes": {"server_version": system.cluster.server_version(), "provider": system.cluster.name},
        "quick": quick,
        "scenarios": [asdict(result) for result in results],
        "holds": all(result.holds for result in results),
    }
    path.write_text(json.dumps(report, indent=2, default=str) + "\n")


def _show(results: Sequence[Result], console: Console) -> None:
    table = Table(header_style="grey62")
    for name in ("", "scenario", "requests", "failed", "seconds"):
        table.add_column(name, justify="right" if name in ("requests", "failed", "seconds") else "left", no_wrap=True)
    for result in results:
        table.add_row(
            Text("✔", "green") if result.holds else Text("✘", "bold red"),
            result.name,
            str(result.facts.get("requests", "")),
            str(result.facts.get("failed", "")),
            f"{result.seconds:.0f}",
        )
    console.print(table)
    for result in results:
        if not result.holds:
            console.print(Text(f"{result.name}, {result.about}: {result.error}", "red"), soft_wrap=True)
