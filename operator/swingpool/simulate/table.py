"""Results side by side in the terminal."""

from collections.abc import Callable
from functools import partial

from rich.table import Table

from swingpool_control.simulation.result import Attained, Latency, Result

Row = tuple[str, Callable[[Result], str]]


def table(results: tuple[Result, ...], *, title: str) -> Table:
    """Return a table with a column for each policy."""
    shown = Table(title=title, title_justify="left", title_style="bold")
    shown.add_column("")
    for result in results:
        shown.add_column(result.policy + ("" if result.finished else " (broken off)"), justify="right")
    for section in sections(results):
        for name, text in section:
            shown.add_row(name, *(text(result) for result in results))
        shown.add_section()
    return shown


def sections(results: tuple[Result, ...]) -> tuple[list[Row], ...]:
    """Return the rows, each a name and what makes a result's cell, in the sections in which they are shown."""
    return _requests(), _objectives(results[0]), _latencies(), _spent(results), _changes()


def _requests() -> list[Row]:
    return [
        ("requests", lambda result: f"{result.requests:,}"),
        ("completed", lambda result: f"{result.completed:,}"),
        ("refused, failed", lambda result: f"{result.refused:,}, {result.failed:,}"),
        ("met TTFT and ITL", lambda result: percent(result.attainment)),
        ("goodput per second", lambda result: _number(result.goodput_per_s)),
    ]


def _objectives(first: Result) -> list[Row]:
    rows: list[Row] = []
    for index, one in enumerate(first.objectives):
        name = f"{one.metric.upper()} within {seconds(one.limit_s)} ({one.percentile})"
        rows.append((name, partial(_objective, index)))
    return rows


def _objective(index: int, result: Result) -> str:
    return _attained(result.objectives[index])


def _latencies() -> list[Row]:
    return [
        ("TTFT p50, p95, p99", lambda result: _spread(result.ttft)),
        ("ITL p50, p95, p99", lambda result: _spread(result.itl)),
        ("end to end p50, p95, p99", lambda result: _spread(result.e2e)),
    ]


def _spent(results: tuple[Result, ...]) -> list[Row]:
    rows: list[Row] = [
        ("simulated", lambda result: seconds(result.simulated_s)),
        ("accelerator hours", lambda result: f"{result.accelerator_hours:.3f}"),
        ("cost", lambda result: "no price" if result.cost is None else f"{result.cost:.2f}"),
    ]
    drawn: list[Row] = [
        ("energy, kWh", lambda result: _number(result.energy_kwh)),
        ("its cost", lambda result: _number(result.energy_cost)),
        ("CO2, kg", lambda result: _number(result.carbon_kg)),
    ]
    said = (
        any(one.energy_kwh is not None for one in results),
        any(one.energy_cost is not None for one in results),
        any(one.carbon_kg is not None for one in results),
    )
    return rows + [row for row, is_said in zip(drawn, said, strict=True) if is_said]


def _changes() -> list[Row]:
    return [
        ("flips to prefill, to decode", lambda result: f"{result.flips_to_prefill}, {result.flips_to_decode}"),
        ("workers started", lambda result: str(result.starts)),
        ("preemptions", lambda result: f"{result.preemptions:,}"),
        ("transfers, failed", lambda result: f"{result.transfers:,}, {result.transfers_failed:,}"),
        ("crashes", lambda result: str(result.crashes)),
    ]


def _attained(one: Attained) -> str:
    return f"{percent(one.share)} {'holds' if one.holds else 'FAILS'}"


def _spread(latency: Latency) -> str:
    return ", ".join(seconds(value) for value in (latency.p50_s, latency.p95_s, latency.p99_s))


def percent(share: float | None) -> str:
    """Return a share in per cent; a dash for none."""
    return "-" if share is None else f"{share:.1%}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def seconds(value: float | None) -> str:
    """Return seconds in the unit that reads best; a dash for none."""
    if value is None:
        return "-"
    return f"{value * 1000:.3g} ms" if value < 1 else f"{value:,.4g} s" if value < 1000 else f"{value:,.0f} s"
