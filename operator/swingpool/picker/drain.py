"""How the router pod ends without losing a request: the picker has Envoy drain, and stays until its last one.

Envoy is the pod's sidecar, so that it gets its own SIGTERM only once the picker has ended.
"""

import asyncio
import logging
import re

import aiohttp

POLL_S = 0.25
ANSWER_S = 2.0

_ACTIVE = re.compile(r"^http\.router\.downstream_rq_active: (\d+)$", re.MULTILINE)

log = logging.getLogger(__name__)


async def drain(session: aiohttp.ClientSession, *, admin: str, timeout_s: float) -> None:
    """Fail Envoy's health check, have its listeners close connections gracefully, and wait for its last request.

    Args:
        session: to ask Envoy with.
        admin: `host:port` of Envoy's admin; if nothing answers there, there is nothing to wait for.
        timeout_s: how long to wait at most.
    """
    try:
        async with asyncio.timeout(timeout_s):
            await _ask(session, "POST", f"http://{admin}/healthcheck/fail")
            await _ask(session, "POST", f"http://{admin}/drain_listeners?graceful&skip_exit")
            await _idle(session, admin)
        log.info("Envoy has drained")
    except TimeoutError:
        log.warning("Envoy still carries requests after %g s", timeout_s)
    except aiohttp.ClientError as error:
        log.info("there is no Envoy to drain: %s", error)


async def _idle(session: aiohttp.ClientSession, admin: str) -> None:
    url = f"http://{admin}/stats?filter=http.router.downstream_rq_active"
    while True:
        if not _active(await _ask(session, "GET", url)):
            return
        await asyncio.sleep(POLL_S)


def _active(stats: str) -> int:
    found = _ACTIVE.search(stats)
    return int(found[1]) if found else 0


async def _ask(session: aiohttp.ClientSession, method: str, url: str) -> str:
    async with asyncio.timeout(ANSWER_S), session.request(method, url) as response:
        return await response.text()
