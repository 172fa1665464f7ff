"""What a person wants to see of a simulation: load, capacity, latencies, roles, and what each policy paid for what."""

from collections.abc import Callable, Iterable

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from swingpool_control import names
from swingpool_control.simulation.result import Attained, Result
from swingpool_control.simulation.series import ENDING, STARTING, Window

PALETTE = ("#0b7285", "#d9480f", "#5f3dc4", "#2b8a3e", "#c2255c", "#e67700", "#1864ab", "#495057", "#862e9c", "#5c940d")
"""One colour for each policy, in their order."""

STATES = {
    names.ROLE_PREFILL: "#1971c2",
    names.ROLE_DECODE: "#f08c00",
    names.ROLE_DRAINING: "#868e96",
    STARTING: "#dee2e6",
    ENDING: "#343a40",
}
GRID = "#e9ecef"
ROW_PX = 240
WORKER_PX = 22
FIRST_LATENCY = 3
"""Row of TTFT, beneath attainment and goodput."""

Line = Callable[[Window], float | None]


def colours(results: Iterable[Result]) -> dict[str, str]:
    """Return the colour of each policy."""
    return {result.policy: PALETTE[number % len(PALETTE)] for number, result in enumerate(results)}


def paid(results: tuple[Result, ...]) -> go.Figure:
    """Return attainment over what it cost, a point for each policy; accelerator hours where not all have a price."""
    priced = all(result.cost is not None for result in results)
    chart = go.Figure()
    for policy, colour, result in _each(results):
        spent = result.cost if priced else result.accelerator_hours
        chart.add_scatter(
            x=[spent],
            y=[None if result.attainment is None else result.attainment * 100],
            name=policy,
            text=[policy],
            mode="markers+text",
            textposition="top center",
            marker={"size": 14, "color": colour},
            hovertemplate="%{text}: %{y:.1f} % for %{x:.3f}<extra></extra>",
        )
    axes(chart, y="requests that met both objectives, %", height=ROW_PX + 120)
    chart.update_xaxes(title="money" if priced else "accelerator hours", rangemode="tozero")
    chart.update_yaxes(range=[-4, 109])
    chart.update_layout(showlegend=False)
    return chart


def load_and_capacity(results: tuple[Result, ...]) -> go.Figure:
    """Return what was asked, what each policy held against it, and what waited."""
    drawn: list[tuple[str, Line]] = [("money per hour", lambda window: window.cost_per_hour)]
    drawn.append(("watts drawn", lambda window: window.watts))
    known = [(title, value) for title, value in drawn if any(value(one) is not None for one in results[0].windows)]
    titles = ("tokens asked per second", "accelerators held", "prompt tokens that wait")
    chart = _rows(*titles, *(title for title, _ in known))
    windows = results[0].windows
    asked: tuple[tuple[str, str, Line], ...] = (
        ("prompt tokens", STATES[names.ROLE_PREFILL], lambda window: window.prompt_tokens),
        ("output tokens", STATES[names.ROLE_DECODE], lambda window: window.output_tokens),
    )
    for label, colour, value in asked:
        rates = [(value(window) or 0.0) / max(1e-9, window.until_s - window.from_s) for window in windows]
        chart.add_scatter(
            x=_minutes(windows),
            y=rates,
            name=label,
            line={"color": colour, "shape": "hv"},
            row=1,
            col=1,
            legend="legend",
        )
    _by_policy(chart, results, lambda window: window.accelerators, row=2, shape="hv")
    chart.update_yaxes(rangemode="tozero", row=2, col=1)
    _by_policy(chart, results, lambda window: window.waiting_prompt_tokens, row=3, named=False)
    for row, (_, value) in enumerate(known, 4):
        _by_policy(chart, results, value, row=row, shape="hv", named=False)
    return chart


def latencies(results: tuple[Result, ...]) -> go.Figure:
    """Return attainment, goodput, TTFT and ITL over time, with the objectives."""
    chart = _rows("met both objectives, %", "goodput, requests per second", "TTFT p95, s", "ITL p95, s")
    _by_policy(chart, results, _attainment, row=1)
    _by_policy(chart, results, _goodput, row=2, named=False)
    _by_policy(chart, results, lambda window: window.ttft_p95_s, row=FIRST_LATENCY, named=False)
    _by_policy(chart, results, lambda window: window.itl_p95_s, row=FIRST_LATENCY + 1, named=False)
    for row, metric in ((FIRST_LATENCY, "ttft"), (FIRST_LATENCY + 1, "itl")):
        chart.update_yaxes(type="log", row=row, col=1)
        for objective in results[0].objectives:
            if objective.metric == metric:
                _limit(chart, results, objective, row=row)
    chart.update_yaxes(range=[-4, 104], row=1, col=1)
    return chart


def roles(result: Result) -> go.Figure:
    """Return what each worker was when."""
    workers = list(dict.fromkeys(stay.worker for stay in sorted(result.stays, key=lambda one: (one.pool, one.from_s))))
    chart = go.Figure()
    for state, colour in STATES.items():
        stays = [stay for stay in result.stays if stay.state == state]
        chart.add_bar(
            y=[stay.worker for stay in stays],
            base=[stay.from_s / 60 for stay in stays],
            x=[(stay.until_s - stay.from_s) / 60 for stay in stays],
            orientation="h",
            name=state,
            marker={"color": colour, "line": {"width": 0}},
            customdata=[[stay.from_s, stay.until_s] for stay in stays],
            hovertemplate=f"%{{y}}: {state} from %{{customdata[0]:.1f}} s to %{{customdata[1]:.1f}} s<extra></extra>",
        )
    axes(chart, y="", height=150 + WORKER_PX * max(4, len(workers)))
    chart.update_layout(barmode="overlay", bargap=0.25)
    chart.update_yaxes(categoryorder="array", categoryarray=workers[::-1])
    chart.update_xaxes(title="minutes")
    return chart


def _each(results: Iterable[Result]) -> Iterable[tuple[str, str, Result]]:
    each = tuple(results)
    chosen = colours(each)
    return ((result.policy, chosen[result.policy], result) for result in each)


def _by_policy(
    chart: go.Figure, results: tuple[Result, ...], value: Line, *, row: int, shape: str = "linear", named: bool = True
) -> None:
    for policy, colour, result in _each(results):
        chart.add_scatter(
            x=_minutes(result.windows),
            y=[value(window) for window in result.windows],
            name=policy,
            legendgroup=policy,
            showlegend=named,
            line={"color": colour, "shape": shape, "width": 1.8},
            connectgaps=False,
            row=row,
            col=1,
        )


def _limit(chart: go.Figure, results: tuple[Result, ...], objective: Attained, *, row: int) -> None:
    chart.add_scatter(
        x=[0.0, max(result.simulated_s for result in results) / 60],
        y=[objective.limit_s] * 2,
        mode="lines",
        name=f"objective ({objective.percentile})",
        legendgroup=f"objective {objective.percentile}",
        showlegend=row == FIRST_LATENCY,
        line={"color": "#c92a2a", "dash": "dash", "width": 1.2},
        hovertemplate=f"{objective.metric.upper()} {objective.percentile}: {objective.limit_s:g} s<extra></extra>",
        row=row,
        col=1,
    )


def _rows(*titles: str) -> go.Figure:
    chart = make_subplots(rows=len(titles), cols=1, shared_xaxes=True, vertical_spacing=0.06, subplot_titles=titles)
    axes(chart, y="", height=ROW_PX * len(titles) + 60)
    chart.update_xaxes(title="minutes", row=len(titles), col=1)
    chart.update_annotations(font_size=13, x=0, xanchor="left")
    return chart


def axes(chart: go.Figure, *, y: str, height: int) -> None:
    """Give a plot the style of all of them, a title of its y axis and a height in pixels."""
    chart.update_layout(
        template="none",
        height=height,
        margin={"l": 70, "r": 20, "t": 72, "b": 50},
        hovermode="closest",
        font={"family": "system-ui, Segoe UI, Roboto, sans-serif", "size": 13},
        legend={"orientation": "h", "yref": "container", "y": 0.985, "yanchor": "top", "x": 0, "xanchor": "left"},
    )
    chart.update_xaxes(gridcolor=GRID, zeroline=False)
    chart.update_yaxes(gridcolor=GRID, zeroline=False, title=y, automargin=True)


def _minutes(windows: Iterable[Window]) -> list[float]:
    return [window.from_s / 60 for window in windows]


def _goodput(window: Window) -> float:
    return window.good / max(1e-9, window.until_s - window.from_s)


def _attainment(window: Window) -> float | None:
    return 100 * window.good / window.ended if window.ended else None
