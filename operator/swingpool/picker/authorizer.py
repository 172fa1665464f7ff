"""Tells how it goes with the external authorizer that Envoy asks, and why where it does not.

Envoy lets requests pass or refuses them by itself, and tells clients no more than that nobody answered. Whether the
way there is closed, or a certificate is not believed, stands in its counters alone; here they become metrics and
warnings.
"""

import asyncio
import logging
import re
import time
from collections.abc import Callable, Mapping

import aiohttp

from swingpool.picker.series import Counts
from swingpool_control.resources.envoy_authorizer import CLUSTER

LOOK_EVERY_S = 2.0
ANSWER_S = 2.0
AGAIN_AFTER_S = 60.0
"""How often the same is said in the log."""

_COUNTERS = rf"http\.router\.ext_authz\.|cluster\.{CLUSTER}\."
_LINE = re.compile(rf"^(?:http\.router\.|cluster\.{CLUSTER}\.)(\S+): (\d+)$", re.MULTILINE)
_OUTCOMES = {"ext_authz.ok": "allowed", "ext_authz.denied": "denied", "ext_authz.error": "unanswered"}
_OF_TLS = {
    "ssl.fail_verify_error": ("untrusted", "its certificate is of no CA in tls.caSecretName, or has ended"),
    "ssl.fail_verify_san": (
        "misnamed",
        "its certificate is for another name than the endpoint's host or tls.serverName",
    ),
    "ssl.connection_error": ("no_tls", "it speaks no TLS, or none that Envoy does"),
}
"""Envoy's counters of what failed in TLS: how it is called in the metric, and in words."""
_OTHERS = {
    "update_failure": ("unresolved", "the name of its host cannot be resolved"),
    "upstream_rq_timeout": ("timeout", "it did not answer within its timeout"),
    "upstream_cx_destroy_remote_with_active_rq": (
        "broke_off",
        "it broke off the connection, as one does that does not take what tls.clientSecretName shows, or misses it",
    ),
}
_NO_ANSWER = ("upstream_rq_pending_failure_eject", "upstream_rq_timeout", "upstream_cx_destroy_remote_with_active_rq")
"""Envoy's counters of requests to it that got no answer at all."""
_UNREACHABLE = ("unreachable", "it cannot be connected to")
_ERROR = ("error", "it answered with a status of 500 or above, or with an error of gRPC's")

log = logging.getLogger(__name__)


class AuthorizerWatch:
    """Follows Envoy's counters.

    Args:
        session: to ask Envoy with.
        admin: `host:port` of Envoy's admin.
        requests: counts requests by outcome.
        troubles: counts what went wrong on the way, by reason.
        clock: monotonic, seconds.
    """

    def __init__(
        self,
        session: aiohttp.ClientSession,
        *,
        admin: str,
        requests: Counts,
        troubles: Counts,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._session = session
        self._url = f"http://{admin}/stats?usedonly&filter={_COUNTERS}"
        self._requests = requests
        self._troubles = troubles
        self._clock = clock
        self._seen: dict[str, int] = {}
        self._told_s: dict[str, float] = {}

    async def follow(self) -> None:
        """Look again and again; an Envoy that does not answer is asked later. Until cancelled."""
        while True:
            try:
                async with asyncio.timeout(ANSWER_S), self._session.get(self._url) as response:
                    self.take(await response.text())
            except (TimeoutError, aiohttp.ClientError) as error:
                log.debug("Envoy does not tell its counters: %s", error)
            await asyncio.sleep(LOOK_EVERY_S)

    def take(self, page: str) -> None:
        """Count what has grown since the last page, and say what went wrong.

        Args:
            page: Envoy's counters, `name: value` a line.
        """
        now = {name: int(value) for name, value in _LINE.findall(page)}
        # A counter that is smaller is that of an Envoy that began anew.
        grown = {
            name: value - (self._seen.get(name, 0) if value >= self._seen.get(name, 0) else 0)
            for name, value in now.items()
        }
        self._seen = now
        for name, outcome in _OUTCOMES.items():
            if grown.get(name):
                self._requests.labels(outcome).inc(grown[name])
        for (reason, words), times in _went_wrong(grown).items():
            self._troubles.labels(reason).inc(times)
            self._tell(reason, words)

    def _tell(self, reason: str, words: str) -> None:
        now_s = self._clock()
        if now_s - self._told_s.get(reason, float("-inf")) >= AGAIN_AFTER_S:
            self._told_s[reason] = now_s
            log.warning("the authorizer does not answer: %s", words, extra={"reason": reason})


def _went_wrong(grown: Mapping[str, int]) -> dict[tuple[str, str], int]:
    """Return how often each thing went wrong."""
    found = {words: grown[name] for name, words in (_OF_TLS | _OTHERS).items() if grown.get(name)}
    # Envoy counts a failed handshake as a connection that could not be made, too.
    unmade = grown.get("upstream_cx_connect_fail", 0) - sum(grown.get(name, 0) for name in _OF_TLS)
    if unmade > 0:
        found[_UNREACHABLE] = unmade
    unanswered = grown.get("ext_authz.error", 0) - sum(grown.get(name, 0) for name in _NO_ANSWER)
    if unanswered > 0:
        found[_ERROR] = unanswered
    return found
