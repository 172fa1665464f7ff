"""Drives a plan: open loop, so that a slow system gets its requests on time and shows its queue."""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import aiohttp

from e2e.load.client import Client
from e2e.load.plan import Arrival, Plan, arrivals
from e2e.load.record import Outcome, Record
from e2e.load.summary import percentiles

WINDOW_S = 5.0
"""Snapshots tell the latencies of the last so many seconds."""

Report = Callable[[dict[str, Any]], None]


class Run:
    """One run of a plan."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.records: list[Record] = []
        self.in_flight = 0
        self.stopping = asyncio.Event()
        self._recent: deque[Record] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self._broken: BaseException | None = None

    async def go(self, report: Report) -> list[Record]:
        """Send the whole plan, or until `stopping` is set; wait for the last answers; report once a second.

        Raises:
            RuntimeError: the load generator itself is at fault.
        """
        start = time.monotonic()
        connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=30)
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=10)
        async with aiohttp.ClientSession(
            connector=connector, timeout=timeout, headers={"content-type": "application/json"}
        ) as session:
            client = Client(session, self.plan, start=start)
            reporter = asyncio.create_task(self._report(report, start))
            for arrival in arrivals(self.plan):
                if await self._stopped_before(start + arrival.at_s):
                    break
                self._launch(client, arrival)
            await self._stopped_before(start + self.plan.seconds)
            if self._tasks:
                await asyncio.wait(self._tasks)
            reporter.cancel()
        if self._broken is not None:
            raise RuntimeError("a request could not be handled") from self._broken
        report(self.snapshot(time.monotonic() - start) | {"ended": True})
        return self.records

    async def _stopped_before(self, when: float) -> bool:
        delay = when - time.monotonic()
        if delay <= 0:
            return self.stopping.is_set()
        try:
            await asyncio.wait_for(self.stopping.wait(), delay)
        except TimeoutError:
            return False
        return True

    def _launch(self, client: Client, arrival: Arrival) -> None:
        record = Record(
            number=arrival.number,
            phase=arrival.phase,
            chat=arrival.chat,
            stream=arrival.stream,
            prompt_tokens=arrival.prompt_tokens,
            expected_tokens=arrival.output_tokens,
            due_s=arrival.at_s,
        )
        self.records.append(record)
        if self.in_flight >= self.plan.max_in_flight:
            record.outcome = Outcome.NOT_SENT
            record.error = f"{self.in_flight} requests in flight, the load generator's bound"
            return
        self.in_flight += 1
        self._recent.append(record)
        task = asyncio.create_task(client.send(arrival, record))
        self._tasks.add(task)
        task.add_done_callback(self._landed)

    def _landed(self, task: asyncio.Task[None]) -> None:
        self.in_flight -= 1
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self._broken = task.exception()
            self.stopping.set()

    async def _report(self, report: Report, start: float) -> None:
        while True:
            await asyncio.sleep(1.0)
            report(self.snapshot(time.monotonic() - start))

    def snapshot(self, now_s: float) -> dict[str, Any]:
        """Return the state of the run: counts so far, latencies and rates of the last seconds, last failures."""
        since_s = now_s - WINDOW_S
        while self._recent and (self._recent[0].ended_s or now_s) < since_s:
            self._recent.popleft()
        ttft, itl = _latencies(self._recent, since_s)
        ended = [record for record in self.records if record.ended_s is not None or record.outcome is Outcome.NOT_SENT]
        failures = [record for record in ended if not record.succeeded]
        last = [record for record in self._recent if (record.sent_s or 0.0) >= since_s]
        window_s = max(min(WINDOW_S, now_s), 0.1)
        return {
            "now_s": round(now_s, 3),
            "unix_s": round(time.time(), 3),
            "phase": self._phase_at(now_s),
            "sent": len(self.records),
            "succeeded": len(ended) - len(failures),
            "failed": len(failures),
            "in_flight": self.in_flight,
            "requests_per_s": round(len(last) / window_s, 2),
            "tokens_per_s": round((len(itl) + len(ttft)) / window_s, 1),
            "ttft_s": percentiles(ttft),
            "itl_s": percentiles(itl),
            "failures": [f"{record.outcome} ({record.status}): {record.error}" for record in failures[-3:]],
        }

    def _phase_at(self, now_s: float) -> str:
        end_s = 0.0
        for phase in self.plan.phases:
            end_s += phase.seconds
            if now_s < end_s:
                return phase.name
        return ""


def _latencies(records: deque[Record], since_s: float) -> tuple[list[float], list[float]]:
    """Return TTFTs and ITLs that ended after `since_s`."""
    ttft: list[float] = []
    itl: list[float] = []
    for record in records:
        if record.first_token_s is None or record.last_token_s is None or record.last_token_s < since_s:
            continue
        if record.first_token_s >= since_s and record.ttft_s is not None:
            ttft.append(record.ttft_s)
        at_s = record.last_token_s
        for gap in reversed(record.itl_s):
            if at_s < since_s:
                break
            itl.append(gap)
            at_s -= gap
    return ttft, itl
