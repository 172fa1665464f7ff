"""The page of a simulation: every policy side by side, in one HTML file."""

from swingpool.report import frame
from swingpool.simulate import charts
from swingpool.simulate.table import percent, seconds, sections
from swingpool_control.simulation.result import Result


def page(results: tuple[Result, ...], *, cluster: str, traffic: str, seed: int) -> str:
    """Return the page as HTML.

    Args:
        results: one for each policy; at least one.
        cluster: the InferenceCluster's name.
        traffic: the traffic's name.
        seed: of all that was drawn.
    """
    first = results[0]
    parts = [
        frame.cards(_cards(first)),
        frame.heading("Side by side", "A request met its objectives if its TTFT and its own mean ITL lie within them."),
        frame.table(("", *(_name(result) for result in results)), _rows(results)),
        frame.heading("What each policy paid for what it got", "Up and to the left is better."),
        frame.figure(charts.paid(results)),
        frame.heading("Load and capacity", "What clients asked for, and what each policy held against it."),
        frame.figure(charts.load_and_capacity(results)),
        frame.heading("Latency against the objectives", "By the time at which requests arrived."),
        frame.figure(charts.latencies(results)),
        frame.heading(
            "Role of every worker", "Where a bar changes from prefill to decode, or back, the worker flipped."
        ),
        *(
            frame.folded(_name(result), frame.figure(charts.roles(result)), is_open=number == 0)
            for number, result in enumerate(results)
        ),
    ]
    return frame.page(
        title=f"{cluster} under {traffic}",
        lead=f"{first.requests:,} requests over {seconds(first.simulated_s)}, decided by the live code.",
        parts=parts,
        footer=f"swingpool simulate, seed {seed}",
    )


def _cards(result: Result) -> tuple[frame.Card, ...]:
    spent = f"{result.accelerator_hours:.2f}" if result.cost is None else f"{result.cost:.2f}"
    return (
        frame.Card(value=percent(result.attainment), label=f"met both objectives ({result.policy})"),
        frame.Card(value=seconds(result.ttft.p95_s), label="TTFT p95"),
        frame.Card(value=seconds(result.itl.p95_s), label="ITL p95"),
        frame.Card(value=spent, label="accelerator hours" if result.cost is None else "money"),
        frame.Card(value=str(result.flips_to_prefill + result.flips_to_decode), label="flips"),
        frame.Card(value=f"{result.refused + result.failed:,}", label="requests lost"),
    )


def _rows(results: tuple[Result, ...]) -> list[list[list[str]]]:
    return [[[name, *(text(result) for result in results)] for name, text in section] for section in sections(results)]


def _name(result: Result) -> str:
    return result.policy + ("" if result.finished else " (broken off)")
