"""Asks every picker of a cluster for its state, and merges the answers.

A picker of a ready pod that does not answer makes the whole picture unknown: what the others see is not all there is.
One that is going down is asked too, since it still carries requests, but its silence says nothing.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import aiohttp

from swingpool.kube import Object
from swingpool.kube.objects import field, labels_of, metadata, name_of
from swingpool.manager.router_merge import merge
from swingpool.manager.store import Key
from swingpool.telemetry.router_state import BadStateError, decode
from swingpool_control import names
from swingpool_control.figures import Unknown
from swingpool_control.observation import RouterObservation

log = logging.getLogger(__name__)

TIMEOUT_S = 0.8
FRESH_S = 0.5
"""An answer younger than this is not asked for again."""


@dataclass(frozen=True, slots=True)
class _Answer:
    at: float
    observation: RouterObservation | Unknown


class RouterPoll:
    """Polls pickers.

    Args:
        monotonic: a clock in seconds that never goes back.
        port: where pickers serve their state.
    """

    def __init__(self, *, monotonic: Callable[[], float], port: int = names.PORT_PICKER_HTTP) -> None:
        self._monotonic = monotonic
        self._port = port
        self._answers: dict[Key, _Answer] = {}
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        """Close the connections."""
        if self._session:
            await self._session.close()

    def forget(self, key: Key) -> None:
        """Drop the memory of a cluster."""
        self._answers.pop(key, None)

    async def observe(self, key: Key, pods: Sequence[Object]) -> RouterObservation | Unknown:
        """Return what all pickers of a cluster see, or why nobody knows.

        Args:
            key: the cluster.
            pods: its pods; those that are no routers are left out.
        """
        known = self._answers.get(key)
        if known and self._monotonic() - known.at < FRESH_S:
            return known.observation
        observation = await self._ask_all([pod for pod in pods if _is_router(pod)])
        self._answers[key] = _Answer(self._monotonic(), observation)
        return observation

    async def _ask_all(self, routers: list[Object]) -> RouterObservation | Unknown:
        running = [pod for pod in routers if field(pod, "status", "podIP") and _phase(pod) == "Running"]
        ready = {name_of(pod) for pod in running if _is_ready(pod)}
        if not ready:
            return Unknown("no router pod is ready")
        answers = await asyncio.gather(*(self._ask(pod) for pod in running))
        silent = [
            answer.why
            for pod, answer in zip(running, answers, strict=True)
            if isinstance(answer, Unknown) and name_of(pod) in ready
        ]
        if silent:
            return Unknown("; ".join(silent))
        return merge([answer for answer in answers if isinstance(answer, RouterObservation)])

    async def _ask(self, pod: Object) -> RouterObservation | Unknown:
        address = str(field(pod, "status", "podIP"))
        host = f"[{address}]" if ":" in address else address
        try:
            if self._session is None:
                self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=TIMEOUT_S))
            async with self._session.get(f"http://{host}:{self._port}/state") as response:
                if response.status != 200:
                    return Unknown(f"picker {name_of(pod)} answered {response.status}")
                return decode(await response.read())
        except (aiohttp.ClientError, OSError, TimeoutError, BadStateError) as error:
            return Unknown(f"picker {name_of(pod)} does not answer: {str(error) or type(error).__name__}")


def _is_router(pod: Object) -> bool:
    return labels_of(pod).get(names.LABEL_COMPONENT) == names.COMPONENT_ROUTER


def _phase(pod: Object) -> str:
    return str(field(pod, "status", "phase") or "")


def _is_ready(pod: Object) -> bool:
    """Whether the pod gets traffic: ready, and not going down."""
    if metadata(pod).get("deletionTimestamp"):
        return False
    conditions = field(pod, "status", "conditions") or ()
    return any(one.get("type") == "Ready" and one.get("status") == "True" for one in conditions)
