"""What Envoy's counters say of the external authorizer: counted by growth, told once and again after a while."""

import logging

import aiohttp
import pytest

from swingpool.picker.authorizer import AGAIN_AFTER_S, AuthorizerWatch
from swingpool.picker.series import Counts


class Watched:
    """A watch with its counts and a clock."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self.requests = Counts("requests", "by outcome", ("outcome",))
        self.troubles = Counts("troubles", "by reason", ("reason",))
        self.now_s = 0.0
        self.watch = AuthorizerWatch(
            session, admin="", requests=self.requests, troubles=self.troubles, clock=lambda: self.now_s
        )

    def take(self, **counters: int) -> None:
        """Show a page; two underscores stand for a dot."""
        lines = [f"{name.replace('__', '.')}: {value}" for name, value in counters.items()]
        self.watch.take("\n".join(line if line.startswith("http.") else f"cluster.authorizer.{line}" for line in lines))


@pytest.fixture
async def watched() -> Watched:
    async with aiohttp.ClientSession() as session:
        return Watched(session)


async def test_what_grows_is_counted_and_an_envoy_that_begins_anew_takes_nothing_away(watched: Watched) -> None:
    for value in (3, 5, 5, 2):
        watched.take(http__router__ext_authz__ok=value)
    assert watched.requests.labels("allowed").value == 7


@pytest.mark.parametrize(
    ("special", "reason", "general", "otherwise"),
    [
        pytest.param("ssl__fail_verify_san", "misnamed", "upstream_cx_connect_fail", "unreachable", id="handshake"),
        pytest.param("upstream_rq_timeout", "timeout", "http__router__ext_authz__error", "error", id="no-answer"),
    ],
)
async def test_a_failure_of_a_known_kind_is_told_as_that_alone(
    watched: Watched, special: str, reason: str, general: str, otherwise: str
) -> None:
    for failures, others in ((2, 0), (3, 1)):
        watched.take(**{special: 2, general: failures})
        assert watched.troubles.labels(reason).value == 2
        assert watched.troubles.labels(otherwise).value == others


async def test_the_same_is_said_again_after_a_while(watched: Watched, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        for value, now_s in ((1, 0.0), (2, 10.0), (3, AGAIN_AFTER_S)):
            watched.now_s = now_s
            watched.take(ssl__fail_verify_error=value)
    assert [record.message for record in caplog.records] == [caplog.records[0].message] * 2
    assert "tls.caSecretName" in caplog.records[0].message


async def test_nothing_wrong_is_nothing_told(watched: Watched, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        watched.take(http__router__ext_authz__ok=1, upstream_cx_connect_fail=0, ssl__handshake=4)
    assert not caplog.records


async def test_of_whatever_kind_an_error_is_it_leaves_a_request_unanswered(watched: Watched) -> None:
    watched.take(http__router__ext_authz__error=3, upstream_rq_timeout=2)
    assert watched.requests.labels("unanswered").value == 3
