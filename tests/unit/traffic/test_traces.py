"""Traces: their formats, their scaling, and what is said of lines that cannot be used."""

import gzip
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from swingpool.traffic.lines import TrafficError
from swingpool.traffic.read import Scaling, detect, read
from swingpool.traffic.synthetic import Seeds
from swingpool_control.simulation.traffic import Arrival, block_hashes

SEEDS = Seeds(arrivals=1, lengths=1)
AZURE = """\
TIMESTAMP,ContextTokens,GeneratedTokens\r
2023-11-16 18:17:03.9799600,4808,10\r
2023-11-16 18:17:04.2299600,3180,8\r
"""
MOONCAKE = """\
{"timestamp": 500, "input_length": 1000, "output_length": 5, "hash_ids": [7, 8]}

{"timestamp": 2500.5, "input_length": 513, "output_length": 1, "hash_ids": [7, 9]}
"""


def about(value: float) -> Any:
    return pytest.approx(value)


def written(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text, newline="")
    return path


def test_azure(tmp_path: Path) -> None:
    path = written(tmp_path, "trace.csv", AZURE)
    assert detect(path) == "azure"
    assert list(read(path, seeds=SEEDS)) == [Arrival(0.0, 4808, 10), Arrival(about(0.25), 3180, 8)]


def test_azure_with_columns_in_another_order_and_an_offset(tmp_path: Path) -> None:
    text = "GeneratedTokens,TIMESTAMP,ContextTokens\n8,2024-05-10 00:00:00.5+00:00,30\n9,2024-05-10 00:00:01+00:00,40\n"
    found = list(read(written(tmp_path, "trace.csv", text), seeds=SEEDS))
    assert found == [Arrival(0.0, 30, 8), Arrival(about(0.5), 40, 9)]


def test_mooncake(tmp_path: Path) -> None:
    path = written(tmp_path, "trace.jsonl", MOONCAKE)
    assert detect(path) == "mooncake"
    first, second = read(path, seeds=SEEDS)
    assert first == Arrival(0.0, 1000, 5, (7, 8), 512)
    assert second == Arrival(about(2.0005), 513, 1, (7, 9), 512)
    shared = set(block_hashes(first, 16)) & set(block_hashes(second, 16))
    assert len(shared) == 512 // 16
    assert len(block_hashes(first, 16)) == 1000 // 16
    assert block_hashes(first, 100) == ()


def test_dynamo_may_lack_hashes_and_mooncake_may_not(tmp_path: Path) -> None:
    path = written(tmp_path, "trace.jsonl", '{"timestamp": 0, "input_length": 10, "output_length": 5}\n')
    assert detect(path) == "dynamo"
    assert list(read(path, seeds=SEEDS)) == [Arrival(0.0, 10, 5, (), 512)]
    with pytest.raises(TrafficError, match=r"trace\.jsonl, line 1, column hash_ids: must be a list"):
        list(read(path, format="mooncake", seeds=SEEDS))


def test_a_gzipped_trace_is_read_as_it_is_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv.gz"
    path.write_bytes(gzip.compress(AZURE.encode()))
    arrivals: Iterator[Arrival] = read(path, seeds=SEEDS)
    assert next(arrivals).prompt_tokens == 4808


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.csv", "TIMESTAMP,ContextTokens\n", "line 1: the header must name GeneratedTokens"),
        ("a.csv", AZURE.replace("3180", "many"), "line 3, column ContextTokens: must be a whole number of tokens"),
        ("a.csv", AZURE.replace(",8\r", ",0\r"), "line 3, column GeneratedTokens: .*1 or more, not '0'"),
        ("a.csv", AZURE.replace(",8\r", "\r"), "line 3: has 2 fields, the header has 3"),
        ("a.csv", AZURE.replace("18:17:04", "18:71:04"), "line 3, column TIMESTAMP: must be a time such as"),
        ("a.csv", AZURE.replace("18:17:04", "18:17:01"), "line 3, column TIMESTAMP: is 2.750 s before .*sort"),
        ("a.jsonl", MOONCAKE.replace("513", "true"), "line 3, column input_length: .*not True"),
        ("a.jsonl", MOONCAKE.replace("2500.5", "null"), "line 3, column timestamp: must be milliseconds"),
        ("a.jsonl", MOONCAKE.replace("[7, 9]", "[7, 9, 10]"), "line 3, column hash_ids: has 3 hashes.*--block-tokens"),
        ("a.jsonl", MOONCAKE + '{"timestamp": 1,}', "line 4, column 16: not JSON"),
        ("a.jsonl", MOONCAKE + "7", "line 4: must be a JSON object"),
        ("a.txt", "when, what\n", "none of the formats azure, .*, synthetic; say which with --format"),
        ("missing.csv", None, "No such file"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, name: str, text: str | None, message: str) -> None:
    path = tmp_path / name
    if text is not None:
        written(tmp_path, name, text)
    with pytest.raises(TrafficError, match=rf"{name}.*{message}"):
        list(read(path, seeds=SEEDS))


def test_rate_and_time_are_scaled_apart(tmp_path: Path) -> None:
    rows = "".join(f"2023-11-16 18:00:{number // 10:02}.{number % 10},100,10\n" for number in range(600))
    path = written(tmp_path, "trace.csv", "TIMESTAMP,ContextTokens,GeneratedTokens\n" + rows)

    def scaled(**how: float) -> list[Arrival]:
        return list(read(path, seeds=SEEDS, scaling=Scaling(**how)))  # type: ignore[arg-type]

    assert len(scaled()) == 600
    assert len(scaled(rate=2.0)) == 1200
    assert 800 < len(scaled(rate=1.5)) < 1000
    assert 200 < len(scaled(rate=0.5)) < 400
    assert scaled(time=2.0)[-1].at_s == pytest.approx(2 * scaled()[-1].at_s)
    assert len(scaled(until_s=30.0)) == 300
    for found in (scaled(rate=2.5), scaled(rate=0.3, time=3.0)):
        assert all(one.at_s <= two.at_s for one, two in itertools.pairwise(found))
    assert scaled(rate=1.5) == scaled(rate=1.5)


def test_copies_share_no_prefix_with_what_they_copy(tmp_path: Path) -> None:
    path = written(tmp_path, "trace.jsonl", MOONCAKE)
    one, copy, other, other_copy = read(path, seeds=SEEDS, scaling=Scaling(rate=2.0))
    assert not set(one.prefix) & set(copy.prefix)
    assert set(copy.prefix) & set(other_copy.prefix)
    assert one.at_s <= copy.at_s <= other.at_s
