"""A performance profile as text: what it says, how far it can be trusted, what it predicts."""

from collections.abc import Iterable, Iterator

from swingpool_control.engine.linear import COEFFICIENTS
from swingpool_control.engine.model import decode_step_s, prefill_s
from swingpool_control.engine.profile import Profile

PROMPTS = (128, 512, 2048, 8192, 32_768)
"""Prompt lengths, tokens."""
BATCHES = ((1, 1024), (16, 1024), (64, 2048), (256, 2048), (256, 8192))
"""Sequences, and the context of each in tokens."""

KNEES = {"prefill_over_token_s": "prefill_knee_tokens", "over_sequence_s": "sequence_knee"}
"""Coefficients that count only beyond a knee, and where that stands."""


def lines(profile: Profile) -> Iterator[str]:
    """Yield the lines of text that show a profile."""
    yield f"{profile.name}: {profile.summary}"
    for title, rows in (
        ("", _description(profile)),
        ("Coefficients of one iteration", _coefficients(profile)),
        ("Error", _errors(profile)),
        ("Prefill alone", _prefill(profile)),
        ("Decode", _decode(profile)),
    ):
        yield ""
        if title:
            yield title
        yield from _aligned(rows)
    if profile.provenance.notes:
        yield ""
        yield "Notes"
        yield from (f"  - {note}" for note in profile.provenance.notes)


def _aligned(rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    table = list(rows)
    widths = [max(len(row[column]) for row in table) for column in range(len(table[0]))]
    for row in table:
        yield "  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def _description(profile: Profile) -> Iterator[tuple[str, str]]:
    layout, provenance = profile.layout, profile.provenance
    yield "models", ", ".join(profile.models) or "none by name"
    yield "accelerator", f"{profile.accelerator.count} x {', '.join(profile.accelerator.products) or 'any'}"
    yield (
        "layout",
        f"tensor parallel {layout.tensor_parallel_size}, {layout.max_batched_tokens} tokens and "
        f"{layout.max_sequences} sequences per iteration, KV cache {layout.kv_cache_dtype}",
    )
    yield "KV cache", f"{profile.kv.capacity_tokens} tokens of {profile.kv.bytes_per_token:.6g} bytes"
    yield (
        "transfer",
        f"{profile.transfer.bytes_per_s / 1e9:.3g} GB/s after {profile.transfer.latency_s * 1e3:.3g} ms",
    )
    yield "start-up", f"{profile.startup_s:g} s"
    if profile.power is not None:
        power = profile.power
        yield "power", f"{power.idle_w:g} W idle, {power.prefill_w:g} W prefill, {power.decode_w:g} W decode"
    yield "source", provenance.source
    yield "licence", provenance.licence
    yield "measured", "yes" if provenance.measured else "no"
    if provenance.basis:
        yield "derived from", provenance.basis.replace("-", " ")
    for name, span in provenance.fitted:
        if span is not None:
            yield f"fitted {name.replace('_', ' ')}", f"{span[0]} to {span[1]}"


def _coefficients(profile: Profile) -> Iterator[tuple[str, str, str]]:
    step = profile.step
    if step.prefill_curve is not None:
        sizes = step.prefill_curve.sizes
        yield "prefill_curve", f"{len(sizes)} sizes", f"{sizes[0]:g} to {sizes[-1]:g} tokens"
    for name in COEFFICIENTS:
        value = getattr(step, name)
        if name in KNEES and value:
            yield name, f"{value:.4g} s", f"beyond {getattr(step, KNEES[name])}"
        elif name not in KNEES and name not in KNEES.values():
            yield name, f"{value:.4g} s", ""


def _errors(profile: Profile) -> Iterator[tuple[str, ...]]:
    error = profile.provenance.error
    yield "", "typical", "p95", "worst"
    for phase in ("prefill", "decode", "mixed"):
        figures = [getattr(error, f"{phase}_{name}") for name in ("typical", "p95", "worst")]
        yield phase, *(f"{figure:.1%}" if figure is not None else "unknown" for figure in figures)


def _prefill(profile: Profile) -> Iterator[tuple[str, ...]]:
    model = profile.model()
    yield "prompt tokens", "ms", ""
    for tokens in PROMPTS:
        milliseconds = prefill_s(model, prompt_tokens=tokens) * 1e3
        yield f"{tokens}", f"{milliseconds:.1f}", _outside(tokens, profile.provenance.fitted.prompt_tokens)


def _decode(profile: Profile) -> Iterator[tuple[str, ...]]:
    model, fitted = profile.model(), profile.provenance.fitted
    yield "sequences", "context tokens each", "ITL ms", ""
    for sequences, context in BATCHES:
        milliseconds = decode_step_s(model, sequences=sequences, context_tokens=sequences * context) * 1e3
        remark = _outside(sequences, fitted.sequences) or _outside(context, fitted.context_tokens)
        if sequences * context > profile.kv.capacity_tokens:
            remark = "does not fit into the KV cache"
        yield f"{sequences}", f"{context}", f"{milliseconds:.1f}", remark


def _outside(value: int, span: tuple[int, int] | None) -> str:
    return "beyond the fitted range" if span is not None and not span[0] <= value <= span[1] else ""
