"""The live view: what the demo sees, drawn in a terminal; plain lines where there is none."""

from collections.abc import Sequence
from types import TracebackType
from typing import Protocol

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from e2e.demo.moments import Flip, Moment, Objective, Watch
from e2e.load.plan import Phase
from swingpool_control import names

ROLE_STYLE = {names.ROLE_PREFILL: "bold orange3", names.ROLE_DECODE: "bold deep_sky_blue1"}
_SPARKS = "▁▂▃▄▅▆▇█"
_SPARK_S = 60
_LAST_FLIPS = 6


class View(Protocol):
    """Shows moments as they come."""

    def __enter__(self) -> "View":
        """Start to show."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End, and leave the terminal as it was."""

    def show(self, watch: Watch) -> None:
        """Show the newest moment."""


def clock(now_s: float) -> str:
    """Return a time as minutes and seconds."""
    return f"{int(now_s) // 60:02d}:{int(now_s) % 60:02d}"


def latency(value_s: float | None) -> str:
    """Return a latency as a person reads it."""
    if value_s is None:
        return "-"
    return f"{value_s * 1000:.0f} ms" if value_s < 1 else f"{value_s:.2f} s"


class PlainView:
    """A line every few seconds, and one for every flip; for logs and pipes."""

    EVERY_S = 5.0

    def __init__(self, console: Console, objectives: Sequence[Objective]) -> None:
        self._console = console
        self._objectives = objectives
        self._next_s = 0.0
        self._told: dict[tuple[str, float], bool] = {}

    def __enter__(self) -> "PlainView":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing was changed, nothing is put back."""

    def show(self, watch: Watch) -> None:
        """Write what is new."""
        moment = watch.moments[-1]
        for key, flip in sorted(watch.flips.items(), key=lambda item: item[1].decided_s):
            serving = flip.serving_s is not None
            if flip.decided_s >= 0 and self._told.get(key) != serving:
                self._told[key] = serving
                self._console.print(f"{clock(moment.now_s)}  flip: {describe(flip)}", soft_wrap=True, highlight=False)
        if moment.now_s >= self._next_s:
            self._next_s = moment.now_s + self.EVERY_S
            self._console.print(self._line(moment), soft_wrap=True, highlight=False)

    def _line(self, moment: Moment) -> str:
        load = moment.load
        roles = [worker.role for worker in moment.workers if worker.ready]
        parts = [
            clock(moment.now_s),
            f"{load.get('phase') or 'last answers':<16}",
            f"{roles.count(names.ROLE_PREFILL)} prefill {roles.count(names.ROLE_DECODE)} decode",
            f"{load.get('requests_per_s', 0):5.1f} req/s",
            f"{load.get('succeeded', 0)} ok, {load.get('failed', 0)} failed, {load.get('in_flight', 0)} in flight",
        ]
        parts += [
            f"{item.metric.upper()} {item.percentile} {latency(_value(load, item))} of {latency(item.limit_s)}"
            for item in self._objectives
        ]
        return "  ".join(parts)


class TerminalView:
    """The whole picture, redrawn in place."""

    def __init__(self, console: Console, objectives: Sequence[Objective], phases: Sequence[Phase], title: str) -> None:
        self._objectives = objectives
        self._phases = phases
        self._title = title
        self._live = Live(console=console, refresh_per_second=2, auto_refresh=False)

    def __enter__(self) -> "TerminalView":
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def show(self, watch: Watch) -> None:
        """Draw the newest moment."""
        self._live.update(self._draw(watch), refresh=True)

    def _draw(self, watch: Watch) -> RenderableType:
        moment = watch.moments[-1]
        head = Group(self._progress(moment), Text(""), self._counts(moment))
        return Panel(
            Group(
                head,
                Text(""),
                _pools(moment),
                _workers(moment),
                Text(""),
                self._latencies(watch),
                Text(""),
                _flips(watch),
            ),
            title=f"[bold]{self._title}[/bold]",
            subtitle=Text(moment.ready, overflow="ellipsis", no_wrap=True),
            border_style="grey50",
            padding=(1, 2),
        )

    def _progress(self, moment: Moment) -> Text:
        line, start_s = Text(no_wrap=True, overflow="ellipsis"), 0.0
        for phase in self._phases:
            done = min(max((moment.now_s - start_s) / phase.seconds, 0.0), 1.0)
            width = max(len(phase.name), 14)
            label = phase.name.center(width)
            split = round(done * width)
            line.append(label[:split], "black on orange3" if "prompt" in phase.name else "black on deep_sky_blue1")
            line.append(label[split:], "grey70 on grey23")
            line.append(" ")
            start_s += phase.seconds
        line.append(f"{clock(moment.now_s)} / {clock(start_s)}", "bold")
        return line

    def _counts(self, moment: Moment) -> Text:
        load = moment.load
        failed = load.get("failed", 0)
        return Text.assemble(
            ("requests  ", "grey62"),
            (f"{load.get('succeeded', 0)} succeeded", "green"),
            f"  {load.get('in_flight', 0)} in flight  ",
            (f"{failed} failed", "bold red" if failed else "grey62"),
            f"   {load.get('requests_per_s', 0):.1f} requests/s  {load.get('tokens_per_s', 0):.0f} tokens/s",
        )

    def _latencies(self, watch: Watch) -> Table:
        table = Table.grid(padding=(0, 3))
        load = watch.moments[-1].load
        for item in self._objectives:
            value = _value(load, item)
            met = value is None or value <= item.limit_s
            history = [_value(moment.load, item) for moment in watch.moments[-_SPARK_S:]]
            table.add_row(
                Text(f"{item.metric.upper()} {item.percentile}", "grey62"),
                Text(latency(value), "bold green" if met else "bold red"),
                Text(f"objective {latency(item.limit_s)}", "grey62"),
                spark(history, item.limit_s),
            )
        return table


def spark(values: Sequence[float | None], limit: float) -> Text:
    """Return a sparkline whose upper half lies above the limit, in red."""
    line = Text()
    for value in values:
        if value is None:
            line.append(" ")
            continue
        height = min(int(value / limit * len(_SPARKS) / 2), len(_SPARKS) - 1)
        line.append(_SPARKS[height], "green" if value <= limit else "red")
    return line


def describe(flip: Flip) -> str:
    """Return a flip in words."""
    took = f"serving after {flip.serving_s - flip.decided_s:.2f} s" if flip.serving_s is not None else flip.outcome
    return f"{flip.worker}  {flip.source} → {flip.target}  {took}  ({flip.reason})"


def _value(load: dict[str, dict[str, float | None]], objective: Objective) -> float | None:
    return (load.get(f"{objective.metric}_s") or {}).get(objective.percentile)


def _pools(moment: Moment) -> Text:
    line = Text(no_wrap=True, overflow="ellipsis")
    for pool in moment.pools:
        line.append(f"{pool['name']} ", "grey62").append(f"{pool['ready']}/{pool['desired']} ready    ")
    return line


def _workers(moment: Moment) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="grey62")
    for name in ("worker", "pool", "role", "in flight"):
        table.add_column(name, no_wrap=True)
    for worker in moment.workers:
        style = ROLE_STYLE.get(worker.role, "grey62")
        held = worker.prefills + worker.decodes
        table.add_row(
            worker.name,
            worker.pool,
            Text(worker.role if worker.ready else f"{worker.role} (not ready)", style if worker.ready else "red"),
            Text("▪" * min(held, 40) + f" {held}", style),
        )
    return table


def _flips(watch: Watch) -> Group:
    flips = watch.flips_in_order()
    lines: list[RenderableType] = [Text(f"flips: {len(flips)}", "grey62")]
    for flip in flips[-_LAST_FLIPS:]:
        line = Text(f"{clock(flip.decided_s)}  {flip.worker}  ", no_wrap=True, overflow="ellipsis")
        line.append(flip.source, ROLE_STYLE.get(flip.source, ""))
        line.append(" → ")
        line.append(flip.target, ROLE_STYLE.get(flip.target, ""))
        done = "" if flip.serving_s is None else f"  serving after {flip.serving_s - flip.decided_s:.2f} s"
        line.append(done, "green").append(f"  {flip.reason}", "grey62")
        lines.append(line)
    return Group(*lines)
