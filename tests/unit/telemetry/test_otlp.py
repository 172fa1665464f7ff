"""Spans on the wire, read by others' protobuf; what becomes of them when a collector does not take them."""

import aiohttp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from swingpool.telemetry import otlp
from swingpool.telemetry.otlp import Exporter, Kind, Span, request
from tests.support.otlp import collecting, spans_of

VALUES = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"])),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False),
)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=300)
IDS = st.binary(min_size=8, max_size=8)
SPANS = st.builds(
    Span,
    trace_id=st.binary(min_size=16, max_size=16),
    span_id=IDS,
    parent_id=st.just(b"") | IDS,
    name=TEXT,
    start_unix_s=st.floats(1e9, 4e9),
    end_unix_s=st.floats(1e9, 4e9),
    kind=st.sampled_from(Kind),
    attributes=st.dictionaries(TEXT, VALUES, max_size=5),
    error=TEXT,
)


@given(SPANS)
def test_a_span_is_read_as_it_was_written(span: Span) -> None:
    [seen, again] = spans_of(request([span, span], resource={"service.name": "me"}, scope="s"))
    assert seen == again
    assert (seen.service, seen.name, seen.kind) == ("me", span.name, span.kind)
    assert (seen.attributes, seen.error) == (span.attributes, span.error)
    ids = (span.trace_id.hex(), span.span_id.hex(), span.parent_id.hex())
    assert (seen.trace_id, seen.span_id, seen.parent_id) == ids
    assert abs(seen.start_ns / 1e9 - span.start_unix_s) < 1e-5
    assert abs(seen.end_ns / 1e9 - max(span.start_unix_s, span.end_unix_s)) < 1e-5


def some(number: int) -> Span:
    return Span(trace_id=b"t" * 16, span_id=b"s" * 8, parent_id=b"", name=str(number), start_unix_s=1.0, end_unix_s=2.0)


async def test_many_go_in_several_batches_and_all_arrive() -> None:
    async with collecting() as collector, aiohttp.ClientSession() as session:
        url = f"http://127.0.0.1:{collector.port}/v1/traces"
        exporter = Exporter(url, {"service.name": "me"}, scope="s", session=session)
        for number in range(otlp.BATCH + 1):
            exporter.add(some(number))
        await exporter.flush()
        assert [one.name for one in collector.spans] == [str(number) for number in range(otlp.BATCH + 1)]


async def test_what_waits_is_bounded_and_losses_are_told_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(otlp, "MOST_SPANS", 3)
    async with collecting() as collector, aiohttp.ClientSession() as session:
        url = f"http://127.0.0.1:{collector.port}/v1/traces"
        exporter = Exporter(url, {"service.name": "me"}, scope="s", session=session)
        for number in range(5):
            exporter.add(some(number))
        await exporter.flush()
        assert len(collector.spans) == 3
        assert "2 spans are lost" in caplog.text
        assert "too many at a time" in caplog.text
        collector.status = 503
        exporter.add(some(9))
        await exporter.flush()
        assert caplog.text.count("are lost") == 1


async def test_nobody_there_is_no_fault(caplog: pytest.LogCaptureFixture) -> None:
    async with aiohttp.ClientSession() as session:
        exporter = Exporter("http://127.0.0.1:1/v1/traces", {"service.name": "me"}, scope="s", session=session)
        exporter.add(some(1))
        await exporter.flush()
    assert "1 spans are lost" in caplog.text
