"""Bodies that pass in pieces: however one is cut and written, parameters of a transfer in it are seen."""

import itertools
import json

from hypothesis import given
from hypothesis import strategies as st

from swingpool.picker.scan import TransferScan
from tests.fuzz.strategies import OBJECTS, TRANSFER


def finds(raw: bytes, cuts: list[int]) -> bool:
    scan, at = TransferScan(), [0, *sorted(min(cut, len(raw)) for cut in cuts), len(raw)]
    return any(scan.finds(raw[start:end]) for start, end in itertools.pairwise(at))


@given(OBJECTS, st.lists(st.integers(0, 200), max_size=6), st.sets(st.integers(0, len(TRANSFER) - 1)))
def test_whatever_a_reader_would_see_is_seen(body: dict[str, object], cuts: list[int], escaped: set[int]) -> None:
    written = "".join(f"\\u{ord(each):04X}" if at in escaped else each for at, each in enumerate(TRANSFER))
    raw = json.dumps(body | {"there": {TRANSFER: 1}}).replace(f'"{TRANSFER}"', f'"{written}"').encode()
    assert TRANSFER in json.loads(raw)["there"]
    assert finds(raw, cuts)
    assert finds(json.dumps({TRANSFER: 1}).encode("utf-16"), cuts), "Python reads that too"


@given(st.text(), st.lists(st.integers(0, 200), max_size=6))
def test_a_text_about_it_is_none(text: str, cuts: list[int]) -> None:
    said = json.dumps({"prompt": f'{text} {{"{TRANSFER}": 1}} {TRANSFER} {text}'}, ensure_ascii=False)
    assert not finds(said.encode("utf-8", "surrogatepass"), cuts) or f'"{TRANSFER}"' in json.dumps(text)


def test_a_large_body_is_scanned_at_a_sensible_cost() -> None:
    scan = TransferScan()
    assert not any(scan.finds(b'"\\u006b' + b"x" * 65_000) for _ in range(100))
    assert scan.finds(b'"kv_transfer_params"')
