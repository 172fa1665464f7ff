"""The frame of every page: one HTML file that holds its style, its script and its figures."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from string import Template

import plotly.graph_objects as go
from plotly.offline import get_plotlyjs

PAGE = Template("""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>$title</title>
<style>
:root {
  --ink: #1b1f24; --soft: #57606a; --line: #d8dee4; --ground: #ffffff; --card: #f6f8fa; --good: #1a7f37; --bad: #b42318
}
* { box-sizing: border-box }
body { margin: 0; color: var(--ink); background: var(--ground) }
body { font: 15px/1.5 system-ui, "Segoe UI", Roboto, sans-serif }
main { max-width: 1120px; margin: 0 auto; padding: 32px 24px 64px }
h1 { font-size: 26px; margin: 0 0 4px }
h2 { font-size: 19px; margin: 40px 0 4px }
p { margin: 4px 0 12px; color: var(--soft); max-width: 75ch }
.cards { display: flex; flex-wrap: wrap; gap: 12px; margin: 20px 0 8px }
.card, pre { background: var(--card); border: 1px solid var(--line); border-radius: 8px; padding: 10px 16px }
.card { min-width: 150px }
.card b { display: block; font-size: 22px; font-variant-numeric: tabular-nums }
.card span { color: var(--soft); font-size: 13px }
.scroll { overflow-x: auto }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; margin: 8px 0; font-size: 14px }
th, td { padding: 4px 14px 4px 0; text-align: right; white-space: nowrap; border-bottom: 1px solid var(--line) }
th:first-child, td:first-child { text-align: left; white-space: normal; max-width: 22em }
ul { color: var(--soft); padding-left: 20px; margin: 4px 0 12px }
tr.section > * { border-bottom: 2px solid var(--soft) }
td.bad { color: var(--bad) } td.good { color: var(--good) }
pre { overflow-x: auto; font-size: 13px }
details { margin: 6px 0 } summary { cursor: pointer; font-weight: 600 }
footer { margin-top: 48px; color: var(--soft); font-size: 13px }
</style>
<script>$script</script>
</head>
<body><main>
<h1>$title</h1>
<p>$lead</p>
$body
<footer>$footer</footer>
</main></body>
</html>
""")


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """One figure that matters, in large."""

    value: str
    label: str


def page(*, title: str, lead: str, parts: Iterable[str], footer: str) -> str:
    """Return a whole page.

    Args:
        title: plain text.
        lead: one or two sentences under it; plain text.
        parts: HTML of what follows, made by the functions here.
        footer: how it was made; plain text.
    """
    return PAGE.substitute(
        title=escape(title),
        script=get_plotlyjs(),
        lead=escape(lead),
        body="\n".join(parts),
        footer=escape(footer),
    )


def heading(text: str, explanation: str = "") -> str:
    """Return a heading and, under it, what the reader sees."""
    return f"<h2>{escape(text)}</h2>" + (f"<p>{escape(explanation)}</p>" if explanation else "")


def bullets(texts: Iterable[str]) -> str:
    """Return a list of sentences; empty ones are left out."""
    return "<ul>" + "".join(f"<li>{escape(text)}</li>" for text in texts if text) + "</ul>"


def cards(cards: Iterable[Card]) -> str:
    """Return a row of figures in large."""
    each = "".join(
        f'<div class="card"><b>{escape(card.value)}</b><span>{escape(card.label)}</span></div>' for card in cards
    )
    return f'<div class="cards">{each}</div>'


def table(header: Sequence[str], sections: Iterable[Iterable[Sequence[str]]]) -> str:
    """Return a table; a line stands under each section. Cells that say `holds` or `FAILS` are coloured."""
    head = "".join(f"<th>{escape(cell)}</th>" for cell in header)
    lines = []
    for section in sections:
        rows = [_row(row) for row in section]
        if rows:
            rows[-1] = rows[-1].replace("<tr>", '<tr class="section">', 1)
        lines.extend(rows)
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{"".join(lines)}</tbody></table></div>'


def figure(chart: go.Figure) -> str:
    """Return a plot."""
    text: str = chart.to_html(
        full_html=False, include_plotlyjs=False, config={"displaylogo": False, "responsive": True}
    )
    return text


def folded(summary: str, content: str, *, is_open: bool) -> str:
    """Return content that the reader may open."""
    return f"<details{' open' if is_open else ''}><summary>{escape(summary)}</summary>{content}</details>"


def preformatted(text: str) -> str:
    """Return text as it is, such as YAML."""
    return f"<pre>{escape(text)}</pre>"


def _row(cells: Sequence[str]) -> str:
    shown = "".join(f"<td{_class(cell)}>{escape(cell)}</td>" for cell in cells)
    return f"<tr>{shown}</tr>"


def _class(cell: str) -> str:
    if cell.endswith("FAILS"):
        return ' class="bad"'
    return ' class="good"' if cell.endswith("holds") else ""
