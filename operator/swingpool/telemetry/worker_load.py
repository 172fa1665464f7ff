"""What workers say of their own load, where no router of ours watches them: two gauges of their /metrics.

Only workers that drain before an external router are asked, so that a drain ends when its worker is empty and not after
the longest time that a request may take.
"""

import asyncio
import math
from collections.abc import Callable, Iterable, Sequence

import aiohttp

from swingpool.kube.objects import Object, field, labels_of, metadata, name_of
from swingpool_control import names
from swingpool_control.figures import Figure, Unknown
from swingpool_control.observation import WorkerLoad

TIMEOUT_S = 0.8
MOST_BYTES = 4 * 1024 * 1024
"""Longest text that is read."""


class WorkerLoads:
    """Asks workers.

    Args:
        now_unix_s: the wall clock.
        port: where workers serve their metrics.
    """

    def __init__(self, *, now_unix_s: Callable[[], float], port: int = names.PORT_WORKER) -> None:
        self._now_unix_s = now_unix_s
        self._port = port
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        """Close the connections."""
        if self._session:
            await self._session.close()

    async def observe(self, pods: Sequence[Object]) -> dict[str, WorkerLoad]:
        """Return the load of every draining worker that answers, by pod.

        Args:
            pods: pods of one cluster; those that do not drain are left out.
        """
        asked = [pod for pod in pods if _drains(pod) and field(pod, "status", "podIP")]
        loads = await asyncio.gather(*(self._ask(str(field(pod, "status", "podIP"))) for pod in asked))
        return {name_of(pod): load for pod, load in zip(asked, loads, strict=True) if load is not None}

    async def _ask(self, address: str) -> WorkerLoad | None:
        host = f"[{address}]" if ":" in address else address
        try:
            if self._session is None:
                self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=TIMEOUT_S))
            async with self._session.get(f"http://{host}:{self._port}/metrics") as response:
                if response.status != 200:
                    return None
                text = await _read(response)
        except (aiohttp.ClientError, OSError, TimeoutError):
            return None
        return parse(text, now_unix_s=self._now_unix_s())


def parse(text: str, *, now_unix_s: float) -> WorkerLoad:
    """Return the load in a Prometheus text exposition; what is missing, NaN or infinite is unknown."""
    lines = text.splitlines()
    return WorkerLoad(
        running=_total(lines, "vllm:num_requests_running"),
        waiting=_total(lines, "vllm:num_requests_waiting"),
        scraped_unix_s=now_unix_s,
    )


def _total(lines: Iterable[str], name: str) -> Figure:
    """Return the sum of a gauge over the engines of a worker (data parallel ranks)."""
    total, found = 0.0, False
    for line in lines:
        if line.startswith((f"{name}{{", f"{name} ")):
            total, found = total + _value(line), True
    if not found:
        return Unknown(f"{name} is missing")
    return total if math.isfinite(total) else Unknown(f"{name} is {total}")


def _value(line: str) -> float:
    _, _, number = line.rpartition("} ") if "{" in line else line.partition(" ")
    try:
        return float(number.split()[0])
    except (ValueError, IndexError):
        return math.nan


async def _read(response: aiohttp.ClientResponse) -> str:
    """Return the answer's text; cut where it is longer than anything a worker tells."""
    parts, size = [], 0
    async for part in response.content.iter_any():
        parts.append(part)
        size += len(part)
        if size > MOST_BYTES:
            break
    return b"".join(parts).decode("utf-8", errors="replace")


def _drains(pod: Object) -> bool:
    drains = labels_of(pod).get(names.LABEL_ROLE) == names.ROLE_DRAINING
    return drains and not metadata(pod).get("deletionTimestamp")
