"""Asks every picker of a cluster for its state, merges the answers, and tells them how far to mix phases.

A picker of a ready pod that does not answer makes the whole picture unknown: what the others see is not all there is.
One that is going down is asked too, since it still carries requests, but its silence says nothing.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

import aiohttp

from swingpool.kube import Object
from swingpool.kube.objects import field, labels_of, metadata, name_of, uid_of
from swingpool.manager.store import Key
from swingpool.telemetry.router_state import BadStateError, decode
from swingpool_control import names
from swingpool_control.figures import Unknown
from swingpool_control.observation import RouterObservation
from swingpool_control.placement.limits import DeflectionLimits
from swingpool_control.router_merge import merge

log = logging.getLogger(__name__)

TIMEOUT_S = 0.8
FRESH_S = 0.5
"""An answer younger than this is not asked for again."""

TELL_AGAIN_S = 10.0
"""Limits are told again this often: a picker that started anew has forgotten them."""


@dataclass(frozen=True, slots=True)
class _Answer:
    at: float
    observation: RouterObservation | Unknown


@dataclass(frozen=True, slots=True)
class _Told:
    at: float
    limits: DeflectionLimits


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
        self._told: dict[Key, dict[str, _Told]] = {}
        """By the uid of the picker's pod."""
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        """Close the connections."""
        if self._session:
            await self._session.close()

    def forget(self, key: Key) -> None:
        """Drop the memory of a cluster."""
        self._answers.pop(key, None)
        self._told.pop(key, None)

    async def observe(self, key: Key, pods: Sequence[Object]) -> RouterObservation | Unknown:
        """Return what all pickers of a cluster see, or why nobody knows.

        Args:
            key: the cluster.
            pods: its pods; those that are no routers are left out.
        """
        known = self._answers.get(key)
        if known and self._monotonic() - known.at < FRESH_S:
            return known.observation
        observation = await self._ask_all([pod for pod in pods if is_router(pod)])
        self._answers[key] = _Answer(self._monotonic(), observation)
        return observation

    async def limit(self, key: Key, pods: Sequence[Object], limits: DeflectionLimits) -> None:
        """Tell every picker of a cluster how far it may mix phases, unless it was told so lately.

        One that does not take it is told again in the next round: it goes by what it knew.
        """
        now = self._monotonic()
        told = self._told.get(key, {})
        running = [pod for pod in pods if is_router(pod) and field(pod, "status", "podIP") and _phase(pod) == "Running"]
        fresh = {uid: known for uid, known in told.items() if known.limits == limits and now - known.at < TELL_AGAIN_S}
        late = [pod for pod in running if uid_of(pod) not in fresh]
        taken = await asyncio.gather(*(self._tell(pod, limits) for pod in late))
        fresh |= {uid_of(pod): _Told(now, limits) for pod, done in zip(late, taken, strict=True) if done}
        self._told[key] = fresh

    async def _tell(self, pod: Object, limits: DeflectionLimits) -> bool:
        try:
            async with self._open().put(f"{url_of(pod, self._port)}/limits", json=asdict(limits)) as response:
                if response.status < 300:
                    return True
                why = f"it answered {response.status}"
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            why = str(error) or type(error).__name__
        log.debug("a picker did not take limits", extra={"picker": name_of(pod), "error": why})
        return False

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=TIMEOUT_S))
        return self._session

    async def _ask_all(self, routers: list[Object]) -> RouterObservation | Unknown:
        running = [pod for pod in routers if field(pod, "status", "podIP") and _phase(pod) == "Running"]
        ready = {name_of(pod) for pod in running if is_ready(pod)}
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
        try:
            async with self._open().get(f"{url_of(pod, self._port)}/state") as response:
                if response.status != 200:
                    return Unknown(f"picker {name_of(pod)} answered {response.status}")
                return decode(await response.read())
        except (aiohttp.ClientError, OSError, TimeoutError, BadStateError) as error:
            return Unknown(f"picker {name_of(pod)} does not answer: {str(error) or type(error).__name__}")


def is_router(pod: Object) -> bool:
    """Return whether a pod is one of a built-in router."""
    return labels_of(pod).get(names.LABEL_COMPONENT) == names.COMPONENT_ROUTER


def url_of(pod: Object, port: int) -> str:
    """Return where a pod serves HTTP; it must have an address."""
    address = str(field(pod, "status", "podIP"))
    return f"http://[{address}]:{port}" if ":" in address else f"http://{address}:{port}"


def _phase(pod: Object) -> str:
    return str(field(pod, "status", "phase") or "")


def is_ready(pod: Object) -> bool:
    """Return whether the pod gets traffic: ready, and not going down."""
    if metadata(pod).get("deletionTimestamp"):
        return False
    conditions = field(pod, "status", "conditions") or ()
    return any(one.get("type") == "Ready" and one.get("status") == "True" for one in conditions)
