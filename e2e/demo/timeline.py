"""The timeline picture: what was asked, which role each worker had, and what clients felt, over one axis of time."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from e2e.demo.live import clock, latency
from e2e.demo.moments import Flip, Moment
from e2e.demo.report import Outcome
from e2e.demo.series import Rolling, Stretch, itl_points, lanes, offered, rolling, ttft_points
from e2e.load.plan import Phase
from swingpool_control import names

INK, FAINT, GRID, MISSED = "#1f2933", "#7b8794", "#e4e7eb", "#d64545"
COLOURS = {names.ROLE_PREFILL: "#ef8a3c", names.ROLE_DECODE: "#2f80c2", names.ROLE_DRAINING: "#9aa5b1"}
LEAST_SHOWN_S = 0.005
_STYLE: dict[Any, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 9.5,
    "text.color": INK,
    "axes.edgecolor": GRID,
    "axes.labelcolor": FAINT,
    "xtick.color": FAINT,
    "ytick.color": FAINT,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "ytick.left": False,
    "savefig.facecolor": "white",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """What the picture tells."""

    outcome: Outcome
    phases: Sequence[Phase]
    moments: Sequence[Moment]


def draw(story: Story, path: Path) -> None:
    """Draw the picture as PNG."""
    end_s = sum(phase.seconds for phase in story.phases)
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(13, 9.2), dpi=150)
        FigureCanvasAgg(figure)
        workers = lanes(story.moments, story.outcome.flips)
        heights = [1.0, 0.34 * max(len(workers), 3), 1.25, 1.25]
        load, roles, ttft, itl = figure.subplots(4, 1, sharex=True, height_ratios=heights)
        figure.subplots_adjust(left=0.085, right=0.93, top=0.865, bottom=0.055, hspace=0.3)
        _titles(figure, story)
        _load(load, story)
        _roles(roles, workers, story.outcome.flips)
        records = story.outcome.records
        _latency(ttft, rolling(ttft_points(records), window_s=4), "ttft", "Time to first token", story)
        _latency(itl, rolling(itl_points(records), window_s=2), "itl", "Inter-token latency", story)
        for axes in (load, roles, ttft, itl):
            _phases(axes, story.phases, named=axes is load)
            axes.set_xlim(0, end_s)
        itl.xaxis.set_major_formatter(FuncFormatter(lambda value, _: clock(value)))
        itl.xaxis.set_major_locator(mpl.ticker.MultipleLocator(_tick_s(end_s)))
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path)


def _tick_s(end_s: float) -> float:
    return 20.0 if end_s > 100 else 10.0


def _titles(figure: Figure, story: Story) -> None:
    outcome = story.outcome
    failed = sum(not record.succeeded for record in outcome.records)
    serving = [flip for flip in outcome.flips if flip.serving_s is not None]
    ways = [sum(flip.target == role for flip in serving) for role in (names.ROLE_PREFILL, names.ROLE_DECODE)]
    figure.text(0.085, 0.955, "Swing workers follow the load", fontsize=19, fontweight="bold")
    figure.text(
        0.085,
        0.925,
        f"{len(outcome.records):,} requests, {failed} failed  ·  {ways[0]} flips to prefill, {ways[1]} to decode  ·  "
        f"{outcome.restarts} restarts  ·  simulated workers on Kubernetes {outcome.server_version}",
        fontsize=10.5,
        color=FAINT,
    )


def _heading(axes: Axes, text: str) -> None:
    axes.set_title(text, loc="left", fontsize=10.5, fontweight="bold", color=INK, pad=7)


def _phases(axes: Axes, phases: Sequence[Phase], *, named: bool) -> None:
    start_s = 0.0
    for number, phase in enumerate(phases):
        if number % 2:
            axes.axvspan(start_s, start_s + phase.seconds, color="#f5f7fa", zorder=-5, linewidth=0)
        if named:
            axes.annotate(
                phase.name,
                (start_s + phase.seconds / 2, 1.0),
                xycoords=("data", "axes fraction"),
                xytext=(0, 6),
                textcoords="offset points",
                ha="center",
                color=FAINT,
            )
        start_s += phase.seconds


def _load(axes: Axes, story: Story) -> None:
    _heading(axes, "Asked for")
    bin_s = 2.0
    starts, prompts, outputs = offered(story.outcome.records, bin_s=bin_s)
    middles = [start + bin_s / 2 for start in starts]
    _area(axes, middles, prompts, COLOURS[names.ROLE_PREFILL])
    axes.set_ylabel("prompt tokens/s", color=COLOURS[names.ROLE_PREFILL])
    other = axes.twinx()
    other.grid(visible=False)
    other.tick_params(right=False)
    _area(other, middles, outputs, COLOURS[names.ROLE_DECODE])
    other.set_ylabel("output tokens/s", color=COLOURS[names.ROLE_DECODE])


def _area(axes: Axes, times: list[float], values: list[float], colour: str) -> None:
    axes.fill_between(times, values, color=colour, alpha=0.22, linewidth=0)
    axes.plot(times, values, color=colour, linewidth=1.6)
    axes.set_ylim(0, max(values, default=1.0) * 1.15)
    axes.yaxis.set_major_locator(mpl.ticker.MaxNLocator(4))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))


def _roles(axes: Axes, workers: dict[str, list[Stretch]], flips: Sequence[Flip]) -> None:
    _heading(axes, "Role of each worker")
    axes.grid(visible=False)
    rows = {worker: len(workers) - number for number, worker in enumerate(workers)}
    for worker, stretches in workers.items():
        for stretch in stretches:
            axes.barh(
                rows[worker],
                stretch.end_s - stretch.start_s,
                left=stretch.start_s,
                height=0.66,
                color=COLOURS.get(stretch.role, GRID),
            )
    for flip in flips:
        if flip.worker in rows and flip.serving_s is not None:
            axes.plot(flip.decided_s, rows[flip.worker], marker="D", markersize=5, color="white", zorder=4)
            axes.annotate(
                f"{flip.serving_s - flip.decided_s:.1f} s",
                (flip.decided_s, rows[flip.worker]),
                xytext=(6, 0),
                textcoords="offset points",
                color="white",
                fontsize=8,
                va="center",
                zorder=4,
            )
    axes.set_yticks(list(rows.values()), [_short(worker) for worker in rows])
    axes.set_ylim(0.45, len(workers) + 0.55)
    for number, role in enumerate((names.ROLE_PREFILL, names.ROLE_DECODE)):
        axes.annotate(
            f"■ {role}", (1.0, 1.0), xycoords="axes fraction", xytext=(-62 * (1 - number), 7),
            textcoords="offset points", ha="right", color=COLOURS[role], fontweight="bold",
        )  # fmt: skip
    axes.annotate(
        "◇ flip decided, with the time until the new role served its first request",
        (0.5, 1.0), xycoords="axes fraction", xytext=(0, 7), textcoords="offset points", ha="center", color=FAINT,
    )  # fmt: skip


def _short(worker: str) -> str:
    """Return a pod's name without its Deployment's hash: `chat-swing-6d5f9-x2x7k` is `swing x2x7k`."""
    parts = worker.split("-")
    return f"{parts[1]} {parts[-1]}" if len(parts) >= 4 else worker


def _latency(axes: Axes, found: Rolling, metric: str, heading: str, story: Story) -> None:
    _heading(axes, heading)
    colour = COLOURS[names.ROLE_PREFILL if metric == "ttft" else names.ROLE_DECODE]
    axes.plot(found.at_s, found.p95, color=colour, linewidth=1.8, label="p95")
    axes.plot(found.at_s, found.p50, color=colour, linewidth=1.2, alpha=0.55, label="p50")
    axes.set_yscale("log")
    # Tokens that a busy client reads in one go lie microseconds apart: below this they say nothing of the workers.
    shown = [value for value in (*found.p95, *found.p50) if value >= LEAST_SHOWN_S]
    axes.set_ylim(bottom=min(shown, default=LEAST_SHOWN_S) * 0.8)
    axes.yaxis.set_major_locator(mpl.ticker.LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: latency(value)))
    axes.yaxis.set_minor_formatter(mpl.ticker.NullFormatter())
    axes.legend(loc="lower right", bbox_to_anchor=(1.0, 0.98), ncols=2, frameon=False, fontsize=9)
    for objective in story.outcome.objectives:
        if objective.metric == metric:
            above = [value > objective.limit_s for value in found.p95]
            axes.axhline(objective.limit_s, color=INK, linewidth=1.1, linestyle=(0, (4, 3)))
            axes.fill_between(
                found.at_s, found.p95, objective.limit_s, where=above, color=MISSED, alpha=0.18, linewidth=0
            )
            axes.annotate(
                f"objective\n{objective.percentile} {latency(objective.limit_s)}",
                (1.0, objective.limit_s),
                xycoords=("axes fraction", "data"),
                xytext=(5, 0),
                textcoords="offset points",
                va="center",
                fontsize=8.5,
            )
