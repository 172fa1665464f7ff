"""What the picker says as bytes is what Envoy's own messages say."""

from envoy.config.core.v3.base_pb2 import HeaderValue, HeaderValueOption
from envoy.service.ext_proc.v3.external_processor_pb2 import (
    BodyMutation,
    BodyResponse,
    CommonResponse,
    HeaderMutation,
    HeadersResponse,
    ProcessingResponse,
)
from hypothesis import given
from hypothesis import strategies as st

from swingpool.picker.answers import answer, placed, reply
from swingpool.picker.handover import Route
from swingpool.picker.replies import Reply
from swingpool_control import names
from swingpool_control.resources.envoy_exchange import PLACED, PLACED_SECOND_TRY_MS, PLACED_TO, SECOND_TRY_AFTER

HOSTS = st.lists(st.sampled_from(["10.0.0.1:8000", "[2001:db8::1]:8000", "worker-0.workers:80"]), min_size=1).map(tuple)
BODIES = st.none() | st.binary(max_size=300) | st.integers(0, 70_000).map(bytes)


@given(HOSTS, BODIES, st.sampled_from([0.0, 0.001, 2.0005]), st.booleans())
def test_a_route(hosts: tuple[str, ...], body: bytes | None, second_s: float, to_headers: bool) -> None:
    route = Route(hosts=hosts, body=body, second_try_after_s=second_s)
    headers = {names.HEADER_DESTINATION: ",".join(hosts)}
    if body is not None:
        headers["content-length"] = str(len(body))
    if second_s:
        headers[SECOND_TRY_AFTER] = "1" if second_s == 0.001 else "2001"
    overwrite = HeaderValueOption.HeaderAppendAction.OVERWRITE_IF_EXISTS_OR_ADD
    common = CommonResponse(
        header_mutation=HeaderMutation(
            set_headers=[
                HeaderValueOption(header=HeaderValue(key=key, raw_value=value.encode()), append_action=overwrite)
                for key, value in headers.items()
            ]
        ),
        body_mutation=None if body is None else BodyMutation(body=body),
    )
    expected = (
        ProcessingResponse(request_headers=HeadersResponse(response=common))
        if to_headers
        else ProcessingResponse(request_body=BodyResponse(response=common))
    )
    said = answer(route, to_headers=to_headers)
    assert ProcessingResponse.FromString(said) == expected
    assert said == expected.SerializeToString()


@given(HOSTS, BODIES, st.sampled_from([0.0, 0.001, 2.0005]))
def test_a_placement(hosts: tuple[str, ...], body: bytes | None, second_s: float) -> None:
    expected = ProcessingResponse(request_body=BodyResponse())
    if body is not None:
        expected.request_body.response.body_mutation.body = body
    where = {PLACED_TO: ",".join(hosts)}
    if second_s:
        where[PLACED_SECOND_TRY_MS] = "1" if second_s == 0.001 else "2001"
    expected.dynamic_metadata.update({PLACED: where})
    said = placed(Route(hosts=hosts, body=body, second_try_after_s=second_s))
    assert ProcessingResponse.FromString(said) == expected


def test_a_reply() -> None:
    said = Reply(status=429, body=b"{}", headers=(("retry-after", "7"),))
    response = ProcessingResponse.FromString(reply(said)).immediate_response
    assert response.status.code == 429
    assert response.body == b"{}"
    headers = {one.header.key: one.header.raw_value for one in response.headers.set_headers}
    assert headers == {"content-type": b"application/json", "retry-after": b"7"}
