"""Calls to workers' engines that take as long as weights take to move: made beside the rounds, one at a time each.

Workers that speak TLS listen to nobody without a certificate, which the router has and the manager has not: there a
router's picker is asked to pass the call on.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence

import aiohttp

from swingpool.kube import KubeError, Object
from swingpool.kube.objects import labels_of, name_of
from swingpool.manager.lease import NotLeadingError
from swingpool.manager.router_poll import is_ready, is_router, url_of
from swingpool_control import names
from swingpool_control.actions import EngineCall, PatchWorker
from swingpool_control.vllm import sleep

LONGEST_S = 120.0
"""For one call; it is made again if it took longer."""

log = logging.getLogger(__name__)


class EngineCalls:
    """Makes calls.

    Args:
        port: where workers serve their API.
        picker_port: where pickers take calls for workers that speak TLS.
    """

    def __init__(self, *, port: int = names.PORT_WORKER, picker_port: int = names.PORT_PICKER_HTTP) -> None:
        self._port = port
        self._picker_port = picker_port
        self._session: aiohttp.ClientSession | None = None
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def close(self) -> None:
        """End all calls; workers are told again by whoever comes next."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        if self._session:
            await self._session.close()

    def start(
        self,
        pod: Object,
        action: EngineCall,
        write: Callable[[PatchWorker], Awaitable[None]],
        *,
        pods: Sequence[Object] = (),
    ) -> bool:
        """Begin a call, unless one to this worker is under way; what it asks for is written once it is answered.

        Args:
            pod: the worker's.
            action: the call, and what follows.
            write: writes that.
            pods: all of its cluster, among them the routers.

        Returns:
            Whether a call began.
        """
        running = self._tasks.get(action.uid)
        if running is not None and not running.done():
            return False
        self._tasks = {uid: task for uid, task in self._tasks.items() if not task.done()}
        self._tasks[action.uid] = asyncio.create_task(self._call(pod, action, write, pods))
        return True

    async def settle(self) -> None:
        """Wait until no call is under way."""
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def _call(
        self,
        pod: Object,
        action: EngineCall,
        write: Callable[[PatchWorker], Awaitable[None]],
        pods: Sequence[Object],
    ) -> None:
        about = {"worker": name_of(pod), "call": action.call}
        try:
            url, query = self._asked(pod, action, pods)
            if self._session is None:
                self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=LONGEST_S, sock_connect=2))
            async with self._session.post(url, params=query) as answer:
                if answer.status != 200:
                    why = (await answer.text())[:200].strip()
                    log.warning("an engine refused", extra=about | {"status": answer.status, "error": why})
                    return
            if action.then is not None:
                await write(action.then)
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            log.warning("an engine did not answer", extra=about | {"error": str(error) or type(error).__name__})
        except (KubeError, NotLeadingError) as error:
            log.warning("what an engine did was not written", extra=about | {"error": str(error)})

    def _asked(self, pod: Object, action: EngineCall, pods: Sequence[Object]) -> tuple[str, Mapping[str, str]]:
        """Return whom to ask, and with which query.

        Raises:
            ValueError: nobody could pass it on.
        """
        if names.LABEL_TLS not in labels_of(pod):
            request = sleep.request(action.call)
            return f"{url_of(pod, self._port)}{request.path}", request.query
        router = next((one for one in pods if is_router(one) and is_ready(one)), None)
        if router is None:
            raise ValueError("no router pod is ready, which would tell workers that speak TLS")
        return f"{url_of(router, self._picker_port)}/workers/{name_of(pod)}/{action.call}", {}
