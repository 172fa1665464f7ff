"""The picker's request log: what it writes, `swingpool simulate` reads back, and lengths are learnt from workers."""

import asyncio
import json
import logging
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swingpool.picker.request_log import FIRST_STREAM_BYTES_PER_TOKEN, AnswerLengths, RequestLog
from swingpool.telemetry.vllm_page import Histogram
from swingpool.traffic.read import detect, read, tells_prefixes
from swingpool.traffic.synthetic import Seeds
from swingpool_control.placement.estimate import TokenRate
from swingpool_control.placement.ticket import Ticket
from swingpool_control.simulation.traffic import Arrival

RATE = TokenRate()


def ended(log: RequestLog, ticket: Ticket, *, at_s: float, tokens: int, status: int = 200) -> None:
    """Write a line of a streamed answer."""
    note = log.note(ticket, {"max_tokens": 1000}, arrived_unix_s=at_s, stream=True)
    size = round(tokens * FIRST_STREAM_BYTES_PER_TOKEN)
    log.ended(note, status=status, body_bytes=size, rate=RATE, duration_s=3.0, ttft_s=0.25, worker="10.0.0.1:8000")


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "requests.jsonl"
    log = RequestLog(path)
    hashes = (hash("a"), hash("b"), hash("c"))
    second = Ticket(2, 1500, arrived_s=0.0, kind="batch", tenant="search", hashes=hashes, block_tokens=517)
    ended(log, second, at_s=1_700_000_002.5, tokens=20)
    log.flush()
    ended(log, Ticket(1, 40, arrived_s=0.0, kind=""), at_s=1_700_000_000.0, tokens=300)
    log.flush()
    log.flush()
    assert detect(path) == "log"
    assert tells_prefixes(path, "log")
    assert list(read(path, seeds=Seeds(arrivals=1, lengths=1))) == [
        Arrival(0.0, 40, 300),
        Arrival(2.5, 1500, 20, hashes, 512, "batch", "search"),
    ]
    line = json.loads(path.read_text().splitlines()[0])
    assert (line["status"], line["stream"], line["ttft_s"], line["worker"]) == (200, True, 0.25, "10.0.0.1:8000")


def test_what_stood_in_the_file_before_stays(tmp_path: Path) -> None:
    path = tmp_path / "requests.jsonl"
    path.write_text("before\n")
    log = RequestLog(path)
    ended(log, Ticket(1, 40, arrived_s=0.0), at_s=1.0, tokens=3)
    log.flush()
    assert path.read_text().startswith("before\n")
    assert len(path.read_text().splitlines()) == 2


async def test_it_writes_by_itself_and_what_is_left_at_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("swingpool.picker.request_log.FLUSH_S", 0.0)
    path = tmp_path / "requests.jsonl"
    log = RequestLog(path)
    following = asyncio.create_task(log.follow())
    ended(log, Ticket(1, 40, arrived_s=0.0), at_s=1.0, tokens=3)
    async with asyncio.timeout(10):
        while not (path.exists() and path.read_text()):  # noqa: ASYNC110 - the line comes from a thread
            await asyncio.sleep(0)
    ended(log, Ticket(2, 40, arrived_s=0.0), at_s=2.0, tokens=3)
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)
    assert len(path.read_text().splitlines()) == 2


def test_what_cannot_be_written_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    log = RequestLog(tmp_path)
    ended(log, Ticket(1, 40, arrived_s=0.0), at_s=1.0, tokens=3)
    with caplog.at_level(logging.WARNING):
        log.flush()
    assert "1 requests are missing from it" in caplog.text


def test_a_request_that_got_no_answer_counts_with_the_usual_length() -> None:
    lengths = AnswerLengths()
    assert lengths.tokens(0, stream=True, served=False, rate=RATE, limit=None) == 128
    assert lengths.tokens(0, stream=True, served=False, rate=RATE, limit=7) == 7


@given(st.floats(20, 800), st.integers(20, 400))
def test_bytes_per_token_are_learnt_from_what_workers_tell(bytes_per_token: float, mean_tokens: int) -> None:
    lengths = AnswerLengths()
    answers = 0
    for _ in range(80):
        for _ in range(50):
            answers += 1
            size = round(bytes_per_token * mean_tokens)
            lengths.tokens(size, stream=True, served=True, rate=RATE, limit=None)
        legs = float(answers)
        lengths.learn(
            Histogram(
                bounds=(1.0, float("inf")), counts=(legs, legs + answers), sum=legs + float(answers * mean_tokens)
            )
        )
    found = lengths.tokens(round(bytes_per_token * 1000), stream=True, served=True, rate=RATE, limit=None)
    assert found == pytest.approx(1000, rel=0.02)
    assert lengths.mean_tokens == pytest.approx(mean_tokens, rel=0.02, abs=0.1)
