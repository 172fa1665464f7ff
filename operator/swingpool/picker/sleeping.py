"""Puts workers to sleep and wakes them for the manager, which has no certificate that they would listen to.

Whoever reaches the picker may ask. Nothing is done of which the worker's own pod does not speak: the manager writes its
mark there before it calls, and only those may who may write pods.
"""

from typing import Literal

import aiohttp
from aiohttp import web

from swingpool.picker.fleet import Fleet
from swingpool.picker.wire import Tls
from swingpool.picker.worker import Worker
from swingpool_control.reserve import mark
from swingpool_control.vllm import sleep

Call = Literal["sleep", "wake"]


class Sleeping:
    """Handlers of the calls.

    Args:
        fleet: the workers.
        session: tells them.
        tls: how those are told that speak TLS.
    """

    def __init__(self, fleet: Fleet, session: aiohttp.ClientSession, *, tls: Tls | None) -> None:
        self._fleet = fleet
        self._session = session
        self._tls = tls

    def routes(self) -> list[web.RouteDef]:
        """Return what serves them."""

        async def put_to_sleep(request: web.Request) -> web.Response:
            return await self._pass_on(request.match_info["pod"], "sleep")

        async def wake(request: web.Request) -> web.Response:
            return await self._pass_on(request.match_info["pod"], "wake")

        return [web.post("/workers/{pod}/sleep", put_to_sleep), web.post("/workers/{pod}/wake", wake)]

    async def _pass_on(self, pod: str, call: Call) -> web.Response:
        worker = next((one for one in self._fleet.workers() if one.member.pod == pod), None)
        if worker is None:
            return web.Response(text="there is no such worker\n", status=404)
        if not mark.allows(worker.member.asleep, call):
            return web.Response(text=f"its pod does not say that it shall {call}\n", status=409)
        try:
            status = await self._told(worker, call)
        except (TimeoutError, aiohttp.ClientError) as error:
            return web.Response(text=f"it does not answer: {type(error).__name__}\n", status=502)
        if status != 200:
            return web.Response(text=f"it answered {status}\n", status=502)
        return web.Response(text="done\n")

    async def _told(self, worker: Worker, call: Call) -> int:
        """Return the status that it answers with once it has done it, which takes as long as weights take to move."""
        address, asked = worker.member.address, sleep.request(call)
        if self._tls is None or not worker.member.tls:
            told = self._session.post(f"http://{address}{asked.path}", params=asked.query)
        else:
            told = self._session.post(
                f"https://{address}{asked.path}",
                params=asked.query,
                ssl=self._tls.context,
                server_hostname=self._tls.server_name,
            )
        async with told as answer:
            return answer.status
