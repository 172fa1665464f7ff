"""Calls to workers' engines that take as long as weights take to move: made beside the rounds, one at a time each."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

import aiohttp

from swingpool.kube import KubeError, Object
from swingpool.kube.objects import field, name_of
from swingpool.manager.lease import NotLeadingError
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
    """

    def __init__(self, *, port: int = names.PORT_WORKER) -> None:
        self._port = port
        self._session: aiohttp.ClientSession | None = None
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def close(self) -> None:
        """End all calls; workers are told again by whoever comes next."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        if self._session:
            await self._session.close()

    def start(self, pod: Object, action: EngineCall, write: Callable[[PatchWorker], Awaitable[None]]) -> bool:
        """Begin a call, unless one to this worker is under way; what it asks for is written once it is answered.

        Returns:
            Whether a call began.
        """
        running = self._tasks.get(action.uid)
        if running is not None and not running.done():
            return False
        self._tasks = {uid: task for uid, task in self._tasks.items() if not task.done()}
        self._tasks[action.uid] = asyncio.create_task(self._call(pod, action, write))
        return True

    async def settle(self) -> None:
        """Wait until no call is under way."""
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def _call(self, pod: Object, action: EngineCall, write: Callable[[PatchWorker], Awaitable[None]]) -> None:
        about = {"worker": name_of(pod), "call": action.call}
        address = str(field(pod, "status", "podIP") or "")
        host = f"[{address}]" if ":" in address else address
        request = sleep.request(action.call)
        try:
            if self._session is None:
                self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=LONGEST_S, sock_connect=2))
            async with self._session.post(f"http://{host}:{self._port}{request.path}", params=request.query) as answer:
                if answer.status != 200:
                    log.warning("an engine refused", extra=about | {"status": answer.status})
                    return
            if action.then is not None:
                await write(action.then)
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            log.warning("an engine did not answer", extra=about | {"error": str(error) or type(error).__name__})
        except (KubeError, NotLeadingError) as error:
            log.warning("what an engine did was not written", extra=about | {"error": str(error)})
