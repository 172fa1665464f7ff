"""Access-log messages with texts that are no UTF-8: all that is read of them stays, and of their neighbours."""

import pytest
from envoy.service.accesslog.v3.als_pb2 import StreamAccessLogsMessage
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from swingpool.picker.accesslog_text import without_texts

TEXTS = ("authority", "path", "user_agent", "referer", "forwarded_for", "original_path")
MARK = "odd-text-here"
ODD = b"\xe9" * len(MARK)
SMALL, LARGE = st.integers(0, 2**31), st.integers(0, 2**63)


def message(ids: list[str], *, odd: set[str], number: int, large: int) -> bytes:
    """Return a message of requests, serialised; the odd texts of the first are no UTF-8."""
    told = StreamAccessLogsMessage()
    told.identifier.log_name = "router"
    for place, request_id in enumerate(ids):
        entry = told.http_logs.log_entry.add()
        entry.common_properties.duration.seconds = number
        entry.common_properties.upstream_remote_address.socket_address.address = "10.0.0.1"
        entry.common_properties.custom_tags["first"] = str(number)
        entry.common_properties.sample_rate = 1.0
        entry.response.response_code.value = 200
        entry.response.response_body_bytes = large
        entry.request.request_body_bytes = large
        entry.request.request_id = request_id
        for name in TEXTS:
            setattr(entry.request, name, MARK if place == 0 and name in odd else f"{name} \u00e9")
    return bytes(told.SerializeToString().replace(MARK.encode(), ODD))


@given(
    st.lists(st.text(st.characters(codec="utf-8"), max_size=200), min_size=1, max_size=4),
    st.sets(st.sampled_from(TEXTS), min_size=1),
    SMALL,
    LARGE,
)
def test_what_is_read_stays(ids: list[str], odd: set[str], number: int, large: int) -> None:
    raw = message(ids, odd=odd, number=number, large=large)
    with pytest.raises(DecodeError):
        StreamAccessLogsMessage.FromString(raw)
    expected = StreamAccessLogsMessage.FromString(message(ids, odd=set(), number=number, large=large))
    for entry in expected.http_logs.log_entry:
        for name in TEXTS:
            entry.request.ClearField(name)
    assert StreamAccessLogsMessage.FromString(without_texts(raw)) == expected


def test_an_id_that_is_no_text_goes() -> None:
    raw = message([MARK, "second"], odd={"path"}, number=1, large=1)
    read = StreamAccessLogsMessage.FromString(without_texts(raw)).http_logs.log_entry
    assert [entry.request.request_id for entry in read] == ["", "second"]


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    try:
        assert len(without_texts(data)) <= 2 * len(data)
    except ValueError:
        return
