"""The page of a plan: the answer, why, what was simulated, and how it would be otherwise."""

import plotly.graph_objects as go

from swingpool.plan import rows
from swingpool.plan.run import Plan
from swingpool.report import frame
from swingpool.simulate import charts
from swingpool.simulate.table import percent, seconds
from swingpool_control.planning.variations import Variation


def page(plan: Plan, *, name: str, traffic: str, manifest: str) -> str:
    """Return the page as HTML."""
    parts: list[str] = []
    chosen = plan.chosen
    if chosen is not None:
        parts.append(
            frame.cards(
                (
                    frame.Card(value=str(chosen.mix.total), label="workers"),
                    frame.Card(value=f"{chosen.mix.cost_per_hour:.2f}", label="per hour"),
                    frame.Card(value=percent(chosen.result.attainment), label="met both objectives"),
                    frame.Card(value=seconds(chosen.result.ttft.p95_s), label="TTFT p95"),
                    frame.Card(value=seconds(chosen.result.itl.p95_s), label="ITL p95"),
                )
            )
        )
    parts += [
        frame.heading("Why"),
        frame.bullets((*rows.reasons(plan), rows.shrinks(plan))),
        frame.heading("What was simulated", "With the traffic itself and the live controller's own code."),
        frame.table(rows.CHECKS, [rows.checks(plan)]),
        frame.heading("How it moves with the rate", "By the formulas; grey where nothing on offer holds."),
        frame.figure(_curve(plan.rates)),
        frame.table(rows.VARIATIONS, [rows.rates(plan)]),
        frame.heading("How it would be otherwise", "By the formulas, against what they propose for this traffic."),
        frame.table(rows.VARIATIONS, [rows.others(plan)]),
    ]
    if chosen is not None:
        parts += [
            frame.heading("The plan over time"),
            frame.figure(charts.load_and_capacity((chosen.result,))),
            frame.figure(charts.latencies((chosen.result,))),
            frame.folded("role of every worker", frame.figure(charts.roles(chosen.result)), is_open=False),
            frame.heading("To apply", "With kubectl apply -f -."),
            frame.preformatted(manifest),
        ]
    return frame.page(
        title=f"Plan for {name} under {traffic}", lead=rows.verdict(plan), parts=parts, footer="swingpool plan"
    )


def _curve(rates: tuple[Variation, ...]) -> go.Figure:
    chart = go.Figure()
    chart.add_scatter(
        x=[one.factor for one in rates],
        y=[one.mix.cost_per_hour for one in rates],
        mode="lines+markers",
        line={"color": charts.PALETTE[0]},
        marker={"size": 10, "color": ["#adb5bd" if one.mix.violated else charts.PALETTE[0] for one in rates]},
        hovertemplate="%{x:g} times the requests: %{y:.2f} per hour<extra></extra>",
    )
    charts.axes(chart, y="cost per hour", height=charts.ROW_PX + 80)
    chart.update_xaxes(title="requests, times the traffic's", rangemode="tozero")
    chart.update_yaxes(rangemode="tozero")
    return chart
