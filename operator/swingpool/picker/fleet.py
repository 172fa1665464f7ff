"""All workers of the cluster, and who is told when they change."""

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence

from swingpool.picker.members import Member
from swingpool.picker.worker import Worker
from swingpool_control.placement.candidates import Candidate

MembershipListener = Callable[[], None]


class Fleet:
    """The workers by address. Everything runs on one event loop; nothing here waits but `changed`."""

    def __init__(self) -> None:
        self.synced = asyncio.Event()
        """Set once the source has told its members for the first time."""
        self._by_address: dict[str, Worker] = {}
        self._listeners: list[MembershipListener] = []
        self._changed = asyncio.Event()

    def on_membership(self, listener: MembershipListener) -> None:
        """Call `listener` after each change of who the workers are."""
        self._listeners.append(listener)

    def publish(self, members: Sequence[Member]) -> None:
        """Take over all members; whoever is not among them is gone."""
        now_unix_s = time.time()
        before = self._by_address
        after: dict[str, Worker] = {}
        # An address can be named twice, by a pod that ends and by its heir: the heir comes last, and counts.
        for member in sorted(members, key=lambda one: (not one.deleting, one.ready)):
            worker = before.get(member.address)
            if worker is None or worker.member.uid != member.uid:
                worker = Worker(member=member, role_since_unix_s=now_unix_s)
            elif worker.member != member:
                worker.became(member, now_unix_s=now_unix_s)
            after[member.address] = worker
        self._by_address = after
        for address, worker in before.items():
            if after.get(address) is not worker:
                worker.fault = "its pod is gone"
                worker.touched()
                abandon_legs(worker)
        self.synced.set()
        for listener in self._listeners:
            listener()
        self.notify()

    def workers(self) -> Iterable[Worker]:
        """Return all workers that exist."""
        return self._by_address.values()

    def get(self, address: str) -> Worker | None:
        """Return the worker at `ip:port`, if there is one."""
        return self._by_address.get(address)

    def candidates(self) -> list[Candidate]:
        """Return what placement sees."""
        return [worker.candidate() for worker in self._by_address.values()]

    def probed(self, worker: Worker, *, fault: str) -> None:
        """Take over what a probe said: an empty `fault` puts the worker in rotation, another takes it out at once."""
        if worker.fault == fault:
            return
        worker.fault = fault
        worker.touched()
        if fault:
            abandon_legs(worker)
        self.notify()

    def notify(self) -> None:
        """Wake whoever waits for a change."""
        self._changed.set()
        self._changed = asyncio.Event()

    async def changed(self, *, timeout_s: float) -> bool:
        """Wait until a worker changes; return False if none did in time."""
        event = self._changed
        try:
            async with asyncio.timeout(timeout_s):
                await event.wait()
        except TimeoutError:
            return False
        return True


def abandon_legs(worker: Worker) -> None:
    """End the prefill legs that a worker holds: it will not answer them."""
    now = asyncio.get_running_loop().time()
    for leg in worker.legs:
        if not leg.expired():
            leg.reschedule(now)
