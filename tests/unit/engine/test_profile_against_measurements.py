"""The built-in H200 profile against the tables that it was fitted to, where those files are at hand."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from swingpool_control.engine import profile
from swingpool_control.engine.model import decode_step_s, prefill_s

DATA = Path(os.environ.get("SWINGPOOL_DATA", "../shared/data")) / "profiles" / "dynamo_H200_TP1P_TP1D"
PROFILE = profile.built_in("llama-3.1-8b-fp8-h200")

pytestmark = pytest.mark.skipif(
    not DATA.is_dir(), reason=f"no measurements at {DATA}: set SWINGPOOL_DATA to compare the profile with them"
)


def table(kind: str) -> Any:
    return np.load(DATA / f"selected_{kind}_interpolation" / "raw_data.npz")


def test_prefill() -> None:
    measured = table("prefill")
    model = PROFILE.model(max_batched_tokens=20_000)
    errors = [
        abs(prefill_s(model, prompt_tokens=int(tokens)) / (milliseconds / 1e3) - 1)
        for tokens, milliseconds in zip(measured["prefill_isl"], measured["prefill_ttft"], strict=True)
    ]
    claimed = PROFILE.provenance.error
    assert claimed.prefill_typical is not None
    assert claimed.prefill_worst is not None
    assert float(np.median(errors)) <= claimed.prefill_typical + 0.0005
    assert max(errors) <= claimed.prefill_worst + 0.0005


def test_decode() -> None:
    """The batch that really ran is throughput times latency: what was asked for stops at the engine's limit."""
    measured = table("decode")
    model = PROFILE.model()
    errors = []
    for context, milliseconds, per_s in zip(
        measured["y_context_length"], measured["z_itl"], measured["z_thpt_per_gpu"], strict=True
    ):
        sequences = max(1, round(per_s * milliseconds / 1e3))
        seconds = decode_step_s(model, sequences=sequences, context_tokens=round(sequences * context))
        errors.append(abs(seconds / (milliseconds / 1e3) - 1))
    claimed = PROFILE.provenance.error.decode_worst
    assert claimed is not None
    assert float(np.median(errors)) <= claimed


def test_capacity() -> None:
    assert int(table("decode")["max_kv_tokens"][0]) == PROFILE.kv.capacity_tokens
