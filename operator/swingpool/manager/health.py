"""Whether the manager is alive, whether it is ready, its metrics and its last decisions: two small HTTP servers.

kopf's own health endpoint starts only with kopf, which a manager that waits for the lease has not started yet.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

import orjson
from aiohttp import web
from prometheus_client import generate_latest

from swingpool.manager.metrics import Metrics
from swingpool_control.replay.decision import Recording, newest, write

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(slots=True)
class Heartbeats:
    """Loops that must come round, and when they did last."""

    monotonic: Callable[[], float]
    limits: dict[str, float] = field(default_factory=dict)
    last: dict[str, float] = field(default_factory=dict)

    def expect(self, loop: str, *, within_s: float) -> Callable[[], None]:
        """Expect a loop to come round; return what it calls each time."""
        self.limits[loop] = within_s

        def beat() -> None:
            self.last[loop] = self.monotonic()

        beat()
        return beat

    def stale(self) -> list[str]:
        """Return the loops that are late, each with its lateness."""
        now = self.monotonic()
        late = {loop: now - self.last[loop] for loop, limit in self.limits.items() if now - self.last[loop] > limit}
        return [f"{loop} has not come round for {seconds:.0f} s" for loop, seconds in late.items()]


Check = Callable[[], list[str]]
"""Returns what is wrong; nothing if all is well."""


RecordingOf = Callable[[str, str], Recording | None]
"""From namespace and name of a cluster to the last decisions about it."""


async def serve(
    *,
    host: str,
    health_port: int,
    metrics_port: int,
    alive: Check,
    ready: Check,
    metrics: Metrics,
    decisions: RecordingOf,
) -> list[web.AppRunner]:
    """Serve /healthz and /readyz on one port; /metrics, and /decisions/NAMESPACE/NAME, on another.

    A probe that fails says why. /decisions?last=N leaves all but the last N of each loop away.

    Returns:
        what to clean up in the end.
    """

    async def healthz(request: web.Request) -> web.Response:
        del request
        return _answer(alive(), 500)

    async def readyz(request: web.Request) -> web.Response:
        del request
        return _answer(alive() + ready(), 503)

    async def scrape(request: web.Request) -> web.Response:
        del request
        return web.Response(body=generate_latest(metrics.registry), headers={"Content-Type": CONTENT_TYPE})

    async def record(request: web.Request) -> web.Response:
        namespace, name = request.match_info["namespace"], request.match_info["name"]
        found = decisions(namespace, name)
        if found is None:
            return web.Response(text=f"nothing was decided here about {namespace}/{name}\n", status=404)
        last = request.query.get("last", "")
        if last and not (last.isascii() and last.isdigit() and int(last) > 0):
            return web.Response(text=f"last: a whole number above zero, not {last!r}\n", status=400)
        if last:
            found = newest(found, int(last))
        return web.Response(body=await asyncio.to_thread(_written, found), content_type="application/json")

    probes, scrapes = web.Application(), web.Application()
    probes.add_routes([web.get("/healthz", healthz), web.get("/readyz", readyz)])
    scrapes.add_routes([web.get("/metrics", scrape), web.get("/decisions/{namespace}/{name}", record)])
    runners = []
    for application, port in ((probes, health_port), (scrapes, metrics_port)):
        runner = web.AppRunner(application, access_log=None, handle_signals=False, shutdown_timeout=1.0)
        await runner.setup()
        await web.TCPSite(runner, host, port).start()
        runners.append(runner)
    return runners


def _written(found: Recording) -> bytes:
    return orjson.dumps(write(found))


def _answer(wrong: list[str], status: int) -> web.Response:
    return web.Response(text="\n".join(wrong) + "\n", status=status) if wrong else web.Response(text="ok\n")
