"""The benchmark of the model's error: it tests what data there is, and says what it could not."""

import json
from pathlib import Path

import pytest

from benchmarks import harness, model_error, peer_answers
from swingpool.aiconfigurator import client


def test_what_has_no_data_is_skipped_and_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = ["model,hardware,prompt_size,batch_size,token_size,prompt_time,token_time,tensor_parallel"]
    lines += [f"bloom-176b,a100-80gb,{n},1,128,{20 + n / 10},{30 + n / 1000},8" for n in range(500, 4000, 500)]
    lines += [f"bloom-176b,a100-80gb,256,{b},128,{20 + 25.6 * b},{30 + b / 2},8" for b in (1, 2, 4, 8, 16, 32)]
    (tmp_path / "splitwise").mkdir()
    (tmp_path / "splitwise" / "perf_model.csv").write_text("\n".join(lines) + "\n")
    monkeypatch.setattr(harness, "DATA", tmp_path)
    monkeypatch.setattr(peer_answers, "FILE", tmp_path / "answers.jsonl")
    monkeypatch.setenv(client.VARIABLE, str(tmp_path / "no python"))
    assert harness.main("model_error", model_error.measure, takes="", argv=["--quick"]) == 0
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert [bar["name"] for bar in result["bars"]] == [
        "splitwise_prefill_median_error",
        "splitwise_decode_median_error",
    ]
    assert result["holds"] is True
    assert len(result["skipped"]) == 3
    assert "mixed_steps" in result["figures"]
