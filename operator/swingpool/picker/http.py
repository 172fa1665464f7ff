"""The picker's own HTTP: metrics, state, probes, and what the manager tells: limits, and workers' sleep."""

from collections.abc import Callable

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from swingpool.picker import limits
from swingpool.picker.fleet import Fleet
from swingpool.picker.journal import MOST_ENTRIES, Journal
from swingpool.picker.metrics import RouterMetrics
from swingpool.picker.sleeping import Sleeping
from swingpool.telemetry.router_state import encode
from swingpool_control.observation import RouterObservation


def application(
    *,
    fleet: Fleet,
    metrics: RouterMetrics,
    observe: Callable[[], RouterObservation | None],
    journal: Journal,
    not_ready: Callable[[], str],
    sleeping: Sleeping | None = None,
) -> web.Application:
    """Return the application.

    Args:
        fleet: the workers, for the gauge of them.
        metrics: what /metrics serves.
        observe: makes what /state serves; None while there is nothing to tell yet.
        journal: what /requests serves of the last requests.
        not_ready: says why /readyz fails, empty if it does not.
        sleeping: takes calls for workers that sleep; None if there are none.
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
    app.add_routes(_of_requests(journal))
    app.router.add_put("/limits", take_limits)
    if sleeping is not None:
        app.add_routes(sleeping.routes())
    app.router.add_get("/healthz", serve_health)
    app.router.add_get("/readyz", serve_ready)
    return app


def _of_requests(journal: Journal) -> list[web.RouteDef]:
    """Return what serves the last requests: one by its id, or the slowest."""

    async def serve_request(request: web.Request) -> web.Response:
        known = journal.of(request.match_info["id"])
        if not known:
            return web.Response(text="no such request is remembered here\n", status=404)
        return web.json_response([entry.told() for entry in known])

    async def serve_slowest(request: web.Request) -> web.Response:
        asked = request.query.get("slowest", "20")
        if not (asked.isascii() and asked.isdigit() and 0 < int(asked) <= MOST_ENTRIES):
            return web.Response(text=f"slowest: a number from 1 to {MOST_ENTRIES}, not {asked!r}\n", status=400)
        return web.json_response([entry.told() for entry in journal.slowest(int(asked))])

    return [web.get("/requests", serve_slowest), web.get("/requests/{id}", serve_request)]
