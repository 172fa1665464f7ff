"""vllm bench's files, request logs, conversations: read as they are, and what is wrong in them is named."""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from swingpool.traffic.lines import TrafficError
from swingpool.traffic.read import Scaling, detect, read
from swingpool.traffic.synthetic import TURN_BLOCK, Load, Seeds, draw
from swingpool_control.simulation.traffic import Arrival

SEEDS = Seeds(arrivals=1, lengths=1)
RESULT: dict[str, Any] = {
    "date": "20260101-000000",
    "request_rate": 10.0,
    "burstiness": 1.0,
    "input_lens": [100, 200, 300],
    "output_lens": [10, 0, 30],
    "errors": ["", "timeout", ""],
}


def written(folder: Path, name: str, content: object) -> Path:
    path = folder / name
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def test_a_result_with_times(tmp_path: Path) -> None:
    path = written(tmp_path, "result.json", RESULT | {"start_times": [1000.5, 1000.0, 1002.0]})
    assert detect(path) == "vllm-result"
    # In the order of arrival, from the first that was sent; what failed there is left out.
    assert list(read(path, seeds=SEEDS)) == [Arrival(0.5, 100, 10), Arrival(2.0, 300, 30)]


def test_a_result_without_times_has_arrivals_of_its_rate_and_burstiness(tmp_path: Path) -> None:
    many = RESULT | {"input_lens": [100] * 5000, "output_lens": [10] * 5000, "burstiness": 0.25}
    found = list(read(written(tmp_path, "result.json", many), seeds=SEEDS))
    gaps = [two.at_s - one.at_s for one, two in pairwise(found)]
    mean = sum(gaps) / len(gaps)
    assert mean == pytest.approx(0.1, rel=0.1)
    assert sum((gap - mean) ** 2 for gap in gaps) / len(gaps) / mean**2 == pytest.approx(4.0, rel=0.25)
    at_once = written(tmp_path, "inf.json", RESULT | {"request_rate": "inf"})
    assert {one.at_s for one in read(at_once, seeds=SEEDS)} == {0.0}


def test_a_dataset_comes_once_a_second_unless_its_time_is_changed(tmp_path: Path) -> None:
    rows = "\n".join(json.dumps({"prompt": "word " * 80, "output_tokens": 7}) for _ in range(400))
    path = written(tmp_path, "prompts.jsonl", rows)
    assert detect(path) == "vllm-dataset"
    found = list(read(path, seeds=SEEDS))
    assert {(one.prompt_tokens, one.output_tokens) for one in found} == {(100, 7)}
    assert found[-1].at_s == pytest.approx(400, rel=0.2)
    faster = list(read(path, seeds=SEEDS, scaling=Scaling(time=0.1)))
    assert faster[-1].at_s == pytest.approx(found[-1].at_s / 10)


def test_a_log(tmp_path: Path) -> None:
    rows = [
        {"arrived_unix_s": 1700000000.25, "prompt_tokens": 12, "output_tokens": 3, "worker": "a"},
        {"arrived_unix_s": 1700000001.0, "prompt_tokens": 13, "output_tokens": 4},
    ]
    path = written(tmp_path, "log.jsonl", "\n".join(map(json.dumps, rows)))
    assert detect(path) == "log"
    assert list(read(path, seeds=SEEDS)) == [Arrival(0.0, 12, 3), Arrival(0.75, 13, 4)]


def test_a_log_is_in_the_order_in_which_requests_ended(tmp_path: Path) -> None:
    rows = [
        {"message": "serving", "level": "info"},
        {"arrived_unix_s": 103, "prompt_tokens": 12, "output_tokens": 3, "class": "batch", "tenant": "a"},
        {
            "arrived_unix_s": 100,
            "prompt_tokens": 1100,
            "output_tokens": 400,
            "hash_ids": [7, 8, 9],
            "block_tokens": 512,
        },
        {"arrived_unix_s": 5000, "prompt_tokens": 1, "output_tokens": 1},
        {"arrived_unix_s": 4000, "prompt_tokens": 2, "output_tokens": 1},
    ]
    path = written(tmp_path, "log.jsonl", "\n".join(map(json.dumps, rows)))
    assert detect(path) == "log"
    assert list(read(path, seeds=SEEDS)) == [
        Arrival(0.0, 1100, 400, (7, 8, 9), 512),
        Arrival(3.0, 12, 3, kind="batch", tenant="a"),
        Arrival(3900.0, 2, 1),
        Arrival(4900.0, 1, 1),
    ]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("r.json", RESULT | {"output_lens": [1]}, r"column output_lens: has 1 values, input_lens has 3"),
        ("r.json", RESULT | {"input_lens": [0, 1, 1]}, r"column input_lens\[0\]: must be a whole number"),
        ("r.json", RESULT | {"start_times": [0, None, 1]}, r"column start_times\[1\]: must be seconds"),
        ("r.json", RESULT | {"request_rate": -1}, r"column request_rate: must be a number above 0"),
        ("r.json", '{"input_lens": [1,]}', r"line 1, column \d+: not JSON"),
        ("p.jsonl", '{"prompt": "a"}\n{"prompt": ""}', r"line 2, column prompt: must be a prompt's text"),
        ("p.jsonl", '{"prompt": "a", "output_tokens": "x"}', r"line 1, column output_tokens"),
        ("l.jsonl", '{"arrived_unix_s": "noon"}', r"line 1, column arrived_unix_s: must be seconds"),
        (
            "l.jsonl",
            '{"arrived_unix_s": 5000, "prompt_tokens": 1, "output_tokens": 1}\n'
            '{"arrived_unix_s": 9000, "prompt_tokens": 1, "output_tokens": 1}\n'
            '{"arrived_unix_s": 4000, "prompt_tokens": 1, "output_tokens": 1}',
            r"line 3, column arrived_unix_s: is 1000\.000 s before",
        ),
        (
            "l.jsonl",
            '{"arrived_unix_s": 5, "prompt_tokens": 1, "output_tokens": 1, "hash_ids": [1]}',
            r"line 1, column block_tokens: must be a whole number",
        ),
        (
            "l.jsonl",
            '{"arrived_unix_s": 5, "prompt_tokens": 1, "output_tokens": 1, "class": 3}',
            r"line 1, column class: must be a text",
        ),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, name: str, content: object, message: str) -> None:
    path = written(tmp_path, name, content)
    with pytest.raises(TrafficError, match=message):
        list(read(path, seeds=SEEDS))


def conversations(**parts: Any) -> list[Arrival]:
    kind = {
        "promptTokens": 200,
        "outputTokens": 60,
        "conversation": {"turns": 4, "secondsBetween": 20} | parts,
        "sharedPrefix": {"groups": 2, "tokens": 512},
    }
    described = Load.model_validate({"phases": [{"seconds": 300, "requestsPerSecond": 0.5, "mix": [kind]}]})
    return list(draw(described, SEEDS))


def test_turns_hold_what_was_said_and_share_its_blocks() -> None:
    found = conversations()
    assert [one.at_s for one in found] == sorted(one.at_s for one in found)
    assert {one.prompt_tokens for one in found} == {712 + 260 * turn for turn in range(4)}
    by_turn = {turn: [one for one in found if one.prompt_tokens == 712 + 260 * turn] for turn in range(4)}
    assert len({len(ones) for ones in by_turn.values()}) == 1
    common = 512 // TURN_BLOCK
    assert len({one.prefix[:common] for one in found}) == 2
    starts = {one.prefix for one in by_turn[0]}
    for later in by_turn[3]:
        # A last turn begins with all the blocks of the first turn of one conversation, and of no other.
        assert sum(later.prefix[: len(start)] == start for start in starts) == 1


def test_a_conversation_ends_where_its_context_would_be_too_long() -> None:
    assert max(one.prompt_tokens for one in conversations(maxContext=1000)) <= 1000
    assert {one.prompt_tokens for one in conversations(maxContext=100)} == {712}
