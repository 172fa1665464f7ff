"""The workers' own word of their KV caches: who is followed, and what is seen of that from outside."""

import asyncio
from collections.abc import Iterator

import zmq
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from swingpool.picker.fleet import Fleet
from swingpool.picker.kv_feed import CatchingUp, Feed
from swingpool.picker.worker import Worker

MOST_SOCKETS = 16_384
"""A worker takes three while its past is told, then two."""
_PREFIX = "swingpool_router_kv_events_"


class KVEvents(Collector):
    """Runs a feed for each worker that publishes; workers come and go with the fleet's membership.

    Args:
        fleet: the workers, and who places requests on them.
    """

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._present = fleet.dispatcher.roster.present
        self._told = self._present.follow()
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._context.set(zmq.MAX_SOCKETS, MOST_SOCKETS)
        self._catching_up = CatchingUp()
        self._feeds: dict[Worker, tuple[Feed, asyncio.Task[None]]] = {}
        fleet.on_membership(self.follow)

    def follow(self) -> None:
        """Follow the workers that there are, and no others."""
        known = {worker for worker in self._fleet.workers() if worker.member.kv_events}
        for worker in [one for one in self._feeds if one not in known]:
            self._feeds.pop(worker)[1].cancel()
            self._told.forget(worker.member.address)
        for worker in known:
            if worker not in self._feeds:
                member = worker.member
                feed = Feed(
                    self._context,
                    worker=member.address,
                    events=member.kv_events,
                    replay=member.kv_replay,
                    present=self._present,
                    catching_up=self._catching_up,
                )
                self._feeds[worker] = feed, asyncio.create_task(feed.follow(), name=f"kv events {member.pod}")

    async def close(self) -> None:
        """End all feeds."""
        tasks = [task for _, task in self._feeds.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._context.destroy(linger=0)

    def collect(self) -> Iterator[Metric]:
        """Yield the state of each feed."""
        connected = GaugeMetricFamily(
            f"{_PREFIX}connected", "Whether a worker's KV events are heard.", labels=["worker"]
        )
        exact = GaugeMetricFamily(
            f"{_PREFIX}exact", "Whether all is known that lies in a worker's KV cache.", labels=["worker"]
        )
        blocks = GaugeMetricFamily(f"{_PREFIX}blocks", "Blocks known to lie in a worker's KV cache.", labels=["worker"])
        messages = CounterMetricFamily(f"{_PREFIX}messages", "Messages of KV events taken in.", labels=["worker"])
        gaps = CounterMetricFamily(f"{_PREFIX}gaps", "Times that messages of KV events were missed.", labels=["worker"])
        for worker, (feed, _) in self._feeds.items():
            pod, address = [worker.member.pod], worker.member.address
            connected.add_metric(pod, float(feed.connected))
            exact.add_metric(pod, float(self._told.knows(address)))
            blocks.add_metric(pod, self._told.count(address))
            messages.add_metric(pod, feed.messages)
            gaps.add_metric(pod, feed.gaps)
        yield from (connected, exact, blocks, messages, gaps)
