"""What the demo makes of what it saw: flips, lanes, report, bars and picture, from an invented run."""

import io
import itertools
import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from e2e.demo import live, moments, report, series, story, timeline
from e2e.load.plan import arrivals
from e2e.load.record import Outcome, Record
from swingpool_control.timestamps import unix_seconds

OBJECTIVES = (
    moments.Objective(metric="ttft", percentile="p95", limit_s=1.0),
    moments.Objective(metric="itl", percentile="p95", limit_s=0.05),
)


SLOW = "flip, decided to serving, p95 s"


def _flip(worker: str, target: str, decided_s: float, took_s: float | None = 0.6) -> moments.Flip:
    source = "decode" if target == "prefill" else "prefill"
    serving_s = None if took_s is None else decided_s + took_s
    return moments.Flip(
        worker=worker, source=source, target=target, decided_s=decided_s, serving_s=serving_s,
        outcome="Serving" if took_s else "InProgress", reason="prefill is short of 2.1 workers",
    )  # fmt: skip


FLIPS = [
    _flip(f"chat-swing-7d4-{worker}", target, start + 3 + 2 * number)
    for start, target in ((0, "prefill"), (48, "decode"), (96, "prefill"), (144, "decode"))
    for number, worker in enumerate(("aaaaa", "bbbbb"))
]


POOLS: tuple[dict[str, Any], ...] = ({"name": "swing", "ready": 2, "desired": 2},)


def _records() -> list[Record]:
    rng = random.Random(5)
    found = []
    for item in arrivals(story.plan("http://router")):
        record = Record(
            number=item.number, phase=item.phase, chat=item.chat, stream=True, prompt_tokens=item.prompt_tokens,
            expected_tokens=item.output_tokens, due_s=item.at_s, sent_s=item.at_s, status=200, outcome=Outcome.WHOLE,
            received_tokens=item.output_tokens,
        )  # fmt: skip
        crowded = 4.0 if item.at_s % 48 < 8 else 1.0
        record.itl_s = [rng.uniform(0.015, 0.035) * crowded for _ in range(item.output_tokens - 1)]
        record.first_token_s = item.at_s + rng.uniform(0.1, 0.6) * crowded
        record.last_token_s = record.first_token_s + sum(record.itl_s)
        record.ended_s = record.last_token_s
        found.append(record)
    return found


def _moments() -> list[moments.Moment]:
    found = []
    for second in range(192):
        workers = [_worker("chat-prefill-5c-xxxxx", "prefill", "prefill")]
        for name in ("aaaaa", "bbbbb"):
            role = "decode"
            for flip in FLIPS:
                if flip.worker.endswith(name) and flip.decided_s <= second:
                    role = flip.target
            workers.append(_worker(f"chat-swing-7d4-{name}", "swing", role))
        workers.append(_worker("chat-decode-9f-yyyyy", "decode", "decode"))
        load = {"ttft_s": {"p95": 0.4}, "itl_s": {"p95": None}, "phase": "prompts", "succeeded": second}
        found.append(
            moments.Moment(now_s=float(second), workers=tuple(workers), pools=POOLS, ready="Ready: yes", load=load)
        )
    return found


def _worker(name: str, pool: str, role: str) -> moments.Worker:
    return moments.Worker(name=name, pool=pool, role=role, ready=True, prefills=1, decodes=2)


def _outcome(**changes: Any) -> report.Outcome:
    settings: dict[str, Any] = {
        "server_version": "v1.37.2", "provider": "local", "records": _records(), "flips": FLIPS, "restarts": 0,
        "objectives": OBJECTIVES,
    }  # fmt: skip
    return report.Outcome(**{**settings, **changes})


def test_the_story_is_long_enough_and_within_what_two_cores_serve() -> None:
    plan = story.plan("http://router")
    found = list(arrivals(plan))
    assert len(found) >= report.MIN_REQUESTS * 1.05
    assert plan.seconds <= 200
    for phase in plan.phases:
        assert phase.requests_per_s * phase.output_tokens.mean <= 1500


def test_a_good_run_holds_every_bar_and_reports_every_key() -> None:
    outcome = _outcome()
    assert [bar.name for bar in report.bars(outcome) if not bar.holds] == []
    found = report.report(outcome)
    assert found["kubernetes"] == {"server_version": "v1.37.2", "provider": "local"}
    assert found["requests"] == {"sent": len(outcome.records), "succeeded": len(outcome.records), "failed": 0}
    assert found["flips"][0] == {
        "worker": "chat-swing-7d4-aaaaa", "from": "decode", "to": "prefill", "decided_s": 3, "serving_s": 3.6,
    }  # fmt: skip
    assert found["restarts"] == 0
    for metric in ("ttft_s", "itl_s"):
        assert list(found[metric]) == [phase.name for phase in story.phases()]
        assert all(set(values) == {"p50", "p95", "p99"} for values in found[metric].values())


@pytest.mark.parametrize(
    ("changes", "broken"),
    [
        ({"records": _records()[:100]}, ["requests sent"]),
        ({"restarts": 1}, ["container restarts"]),
        ({"flips": FLIPS[:4]}, []),
        ({"flips": FLIPS[:3]}, ["flips to decode"]),
        ({"flips": [_flip("a", "prefill", 1, 3.5) for _ in FLIPS]}, ["flips to decode", SLOW]),
        ({"flips": [_flip("a", "prefill", 1, None)]}, ["flips to prefill", "flips to decode", SLOW]),
    ],
)  # fmt: skip
def test_what_does_not_hold_is_named(changes: dict[str, Any], broken: list[str]) -> None:
    assert [bar.name for bar in report.bars(_outcome(**changes)) if not bar.holds] == broken


def test_a_failed_request_breaks_its_bar_and_is_told() -> None:
    records = _records()
    records[7].outcome, records[7].error = Outcome.CUT, "ServerDisconnectedError"
    outcome = _outcome(records=records)
    assert [bar.name for bar in report.bars(outcome) if not bar.holds] == ["requests failed"]
    assert report.report(outcome)["failures"] == {"ServerDisconnectedError": 1}


def test_flips_are_read_from_the_status_in_seconds_since_the_start() -> None:
    first = {"worker": "a", "from": "prefill", "to": "decode", "decidedAt": "2026-01-01T00:00:02Z"}
    second = {"worker": "b", "from": "decode", "to": "prefill", "decidedAt": "2026-01-01T00:00:10.5Z"}
    status = {
        "flips": [
            {**second, "outcome": "InProgress", "reason": "r"},
            {**first, "servingAt": "2026-01-01T00:00:03.25Z", "outcome": "Serving", "reason": "r"},
        ]
    }
    found = moments.read_flips(status, start_unix_s=unix_seconds("2026-01-01T00:00:00Z"))
    assert [(flip.worker, flip.decided_s, flip.serving_s) for flip in found] == [("a", 2, 3.25), ("b", 10.5, None)]


def test_lanes_change_where_flips_were_decided() -> None:
    found = series.lanes(_moments(), FLIPS)
    assert next(iter(found)) == "chat-prefill-5c-xxxxx"
    swing = found["chat-swing-7d4-aaaaa"]
    assert [item.role for item in swing] == ["decode", "prefill", "decode", "prefill", "decode"]
    assert [item.start_s for item in swing[1:]] == [3, 51, 99, 147]
    assert all(before.end_s == after.start_s for before, after in itertools.pairwise(swing))


@given(st.lists(st.tuples(st.floats(0, 60), st.floats(0.001, 10)), max_size=60))
def test_rolling_percentiles_lie_within_what_was_seen(points: list[tuple[float, float]]) -> None:
    found = series.rolling(points, window_s=4)
    assert len(found.at_s) == len(found.p50) == len(found.p95)
    assert bool(found.at_s) == bool(points)
    values = {value for _, value in points}
    assert set(found.p50) <= values
    assert all(low <= high for low, high in zip(found.p50, found.p95, strict=True))


def test_the_picture_is_drawn(tmp_path: Path) -> None:
    path = tmp_path / "demo" / "timeline.png"
    timeline.draw(timeline.Story(outcome=_outcome(), phases=story.phases(), moments=_moments()), path)
    assert path.read_bytes().startswith(b"\x89PNG")


def test_views_show_flips_and_latencies(tmp_path: Path) -> None:
    text = io.StringIO()
    console = Console(file=text, width=160)

    seen: Any = SimpleNamespace(
        moments=_moments()[:20],
        flips={(flip.worker, flip.decided_s): flip for flip in FLIPS[:2]},
        flips_in_order=lambda: FLIPS[:2],
    )
    with live.PlainView(console, OBJECTIVES) as view:
        view.show(seen)
        view.show(seen)
    plain = text.getvalue()
    assert plain.count("chat-swing-7d4-aaaaa  decode → prefill  serving after 0.60 s") == 1
    assert "TTFT p95 400 ms of 1.00 s" in plain
    with live.TerminalView(console, OBJECTIVES, story.phases(), "demo") as drawn:
        drawn.show(seen)
    assert "swing 2/2 ready" in text.getvalue()
    report.show(_outcome(), console)
    assert "What must hold" in text.getvalue()
