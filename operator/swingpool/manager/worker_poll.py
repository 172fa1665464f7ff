"""Asks the workers of a cluster with an external router for their metrics: nobody else tells what goes on there."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import aiohttp

from swingpool.kube.objects import Object, labels_of, metadata, name_of, uid_of
from swingpool.kube.objects import field as field_of
from swingpool.manager.external_traffic import Asked, ExternalTraffic
from swingpool.manager.store import Key
from swingpool.telemetry import worker_page
from swingpool.telemetry.vllm_page import WorkerFigures, parse
from swingpool_control import names
from swingpool_control.observation import RouterObservation

TIMEOUT_S = 0.8
FRESH_S = 0.5
"""An answer younger than this is not asked for again."""


@dataclass(slots=True)
class _Cluster:
    at: float | None = None
    traffic: ExternalTraffic = field(default_factory=ExternalTraffic)


class WorkerPoll:
    """Polls workers.

    Args:
        monotonic: a clock in seconds that never goes back.
        now_unix_s: the wall clock.
        port: where workers serve their metrics.
    """

    def __init__(
        self, *, monotonic: Callable[[], float], now_unix_s: Callable[[], float], port: int = names.PORT_WORKER
    ) -> None:
        self._monotonic = monotonic
        self._now_unix_s = now_unix_s
        self._port = port
        self._clusters: dict[Key, _Cluster] = {}
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        """Close the connections."""
        if self._session:
            await self._session.close()

    def forget(self, key: Key) -> None:
        """Drop the memory of a cluster."""
        self._clusters.pop(key, None)

    async def observe(self, key: Key, pods: Sequence[Object]) -> RouterObservation:
        """Return what a cluster's workers say of the traffic and of themselves.

        Args:
            key: the cluster.
            pods: its pods; those that are no workers, or have no address yet, are left out.
        """
        known = self._clusters.setdefault(key, _Cluster())
        if known.at is None or self._monotonic() - known.at >= FRESH_S:
            workers = workers_of(pods)
            asked = await asyncio.gather(*(self._ask(pod) for pod in workers))
            known.at = self._monotonic()
            known.traffic.saw(asked, now_unix_s=self._now_unix_s())
        return known.traffic.observation(now_unix_s=self._now_unix_s())

    async def _ask(self, pod: Object) -> Asked:
        asked = asked_of(pod, port=self._port)
        return replace(asked, figures=await self._figures(asked.address))

    async def _figures(self, address: str) -> WorkerFigures | None:
        if self._session is None:
            self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=TIMEOUT_S))
        try:
            async with self._session.get(f"http://{address}/metrics") as response:
                text = await worker_page.read(response)
        except (aiohttp.ClientError, OSError, TimeoutError):
            return None
        return None if text is None else parse(text, now_unix_s=self._now_unix_s())


def workers_of(pods: Sequence[Object]) -> list[Object]:
    """Return the pods that are workers and have an address."""
    return [pod for pod in pods if _is_worker(pod) and field_of(pod, "status", "podIP")]


def asked_of(pod: Object, *, port: int = names.PORT_WORKER) -> Asked:
    """Return a worker that has not answered yet."""
    ip = str(field_of(pod, "status", "podIP"))
    return Asked(
        pod=name_of(pod),
        uid=uid_of(pod),
        address=f"[{ip}]:{port}" if ":" in ip else f"{ip}:{port}",
        role=str(labels_of(pod).get(names.LABEL_ROLE) or ""),
        why_not=_why_not(pod),
        figures=None,
    )


def _is_worker(pod: Object) -> bool:
    return labels_of(pod).get(names.LABEL_COMPONENT) == names.COMPONENT_WORKER


def _why_not(pod: Object) -> str:
    if metadata(pod).get("deletionTimestamp"):
        return "its pod is being deleted"
    conditions = field_of(pod, "status", "conditions") or ()
    ready = any(one.get("type") == "Ready" and one.get("status") == "True" for one in conditions)
    return "" if ready else "its pod is not ready"
