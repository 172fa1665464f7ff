"""The picker's own HTTP: metrics, state, probes, and the limits that the manager sets."""

from collections.abc import Callable

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from swingpool.picker import limits
from swingpool.picker.fleet import Fleet
from swingpool.picker.metrics import RouterMetrics
from swingpool.telemetry.router_state import encode
from swingpool_control.observation import RouterObservation


def application(
    *,
    fleet: Fleet,
    metrics: RouterMetrics,
    observe: Callable[[], RouterObservation | None],
    not_ready: Callable[[], str],
) -> web.Application:
    """Return the application.

    Args:
        fleet: the workers, for the gauge of them.
        metrics: what /metrics serves.
        observe: makes what /state serves; None while there is nothing to tell yet.
        not_ready: says why /readyz fails, empty if it does not.
    """

    async def serve_metrics(_: web.Request) -> web.Response:
        metrics.workers.clear()
        for worker in fleet.workers():
            metrics.workers.labels(worker.member.role, "out" if worker.why_not else "in").inc()
        body = generate_latest(metrics.registry)
        return web.Response(body=body, headers={"content-type": CONTENT_TYPE_LATEST})

    async def serve_state(_: web.Request) -> web.Response:
        observation = observe()
        if observation is None:
            return web.Response(text="the workers are not known yet\n", status=503)
        return web.Response(body=encode(observation), content_type="application/json")

    async def serve_health(_: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def serve_ready(_: web.Request) -> web.Response:
        why = not_ready()
        return web.Response(text=f"{why or 'ok'}\n", status=503 if why else 200)

    async def take_limits(request: web.Request) -> web.Response:
        try:
            fleet.dispatcher.limits = limits.decode(await request.read())
        except limits.BadLimitsError as error:
            return web.Response(text=f"{error}\n", status=400)
        return web.Response(status=204)

    app = web.Application()
    app.router.add_get("/metrics", serve_metrics)
    app.router.add_get("/state", serve_state)
    app.router.add_put("/limits", take_limits)
    app.router.add_get("/healthz", serve_health)
    app.router.add_get("/readyz", serve_ready)
    return app
