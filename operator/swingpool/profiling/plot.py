"""A page that shows measured points beside what the fitted model says of them."""

from collections.abc import Sequence
from pathlib import Path

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from swingpool_control.engine.linear import LinearModel
from swingpool_control.engine.measured.point import Measurement, Phase
from swingpool_control.engine.model import decode_step_s, prefill_s

_TITLES = {
    Phase.PREFILL: "A prompt alone",
    Phase.DECODE: "A decode step",
    Phase.MIXED: "A prompt beside decoding sequences",
}


def predicted_s(model: LinearModel, point: Measurement) -> float:
    """Return what a model says of a measured point."""
    if point.phase is Phase.PREFILL:
        return prefill_s(model, prompt_tokens=round(point.prompt_tokens), cached_tokens=round(point.cached_tokens))
    context = round(point.sequences * point.context_tokens)
    if point.phase is Phase.DECODE:
        return decode_step_s(model, sequences=round(point.sequences), context_tokens=context)
    tokens = round(point.computed_tokens)
    return model.step_s(
        prefill_tokens=tokens,
        prefill_context_tokens=tokens * tokens // 2,
        decode_sequences=round(point.sequences),
        decode_context_tokens=context,
    )


def write(path: Path, model: LinearModel, points: Sequence[Measurement], *, title: str) -> None:
    """Write the page; it needs nothing from elsewhere."""
    figure = make_subplots(rows=1, cols=3, subplot_titles=[_TITLES[phase] for phase in _TITLES])
    for column, phase in enumerate(_TITLES, start=1):
        chosen = [point for point in points if point.phase is phase]
        if not chosen:
            continue
        predictions = [predicted_s(model, point) for point in chosen]
        errors = [said / point.seconds - 1 for point, said in zip(chosen, predictions, strict=True)]
        texts = [f"{point.origin}<br>{error:+.1%}" for point, error in zip(chosen, errors, strict=True)]
        most = max(*predictions, *(point.seconds for point in chosen))
        figure.add_trace(
            go.Scatter(
                x=[point.seconds for point in chosen], y=predictions, mode="markers", text=texts, hoverinfo="text"
            ),
            row=1,
            col=column,
        )
        figure.add_trace(go.Scatter(x=[0, most], y=[0, most], mode="lines", hoverinfo="skip"), row=1, col=column)
    figure.update_xaxes(title="measured, s", rangemode="tozero")
    figure.update_yaxes(title="fitted, s", rangemode="tozero")
    figure.update_layout(title=title, showlegend=False)
    path.write_text(figure.to_html(include_plotlyjs=True), encoding="utf-8")
