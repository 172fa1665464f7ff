"""All workers of the cluster, and who is told when they change."""

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from swingpool.picker.members import Member
from swingpool.picker.worker import Worker
from swingpool_control.engine.model import PerformanceModel
from swingpool_control.figures import Unknown
from swingpool_control.placement.account import Account, Leg
from swingpool_control.placement.dispatcher import Dispatcher
from swingpool_control.placement.settings import PlacementSettings
from swingpool_control.placement.typical import TYPICAL

MembershipListener = Callable[[], None]


class Fleet:
    """The workers by address. Everything runs on one event loop; nothing here waits but `changed`.

    Args:
        dispatcher: who places requests on them.
        models: what the workers of each pool can do.
    """

    def __init__(
        self, dispatcher: Dispatcher | None = None, models: Mapping[str, PerformanceModel] | None = None
    ) -> None:
        self.dispatcher = dispatcher or Dispatcher(PlacementSettings())
        self.models = models or {}
        self.synced = asyncio.Event()
        """Set once the source has told its members for the first time."""
        self._by_address: dict[str, Worker] = {}
        self._listeners: list[MembershipListener] = []
        self._free_listeners: list[MembershipListener] = []
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
                model = self.models.get(member.pool, TYPICAL)
                account = Account(member.address, model, generation=member.generation)
                worker = Worker(member=member, account=account, role_since_unix_s=now_unix_s)
            elif worker.member != member:
                worker.became(member, now_unix_s=now_unix_s)
            after[member.address] = worker
        self._by_address = after
        for address, worker in before.items():
            if after.get(address) is not worker:
                worker.fault = "its pod is gone"
                self.dispatcher.removed(worker.account)
                worker.abandon_legs(worker.fault)
        for worker in after.values():
            self._place(worker)
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

    def of(self, account: Account) -> Worker | None:
        """Return the worker of an account, if it exists still."""
        worker = self._by_address.get(account.worker)
        return worker if worker is not None and worker.account is account else None

    def probed(self, worker: Worker, *, fault: str) -> None:
        """Take over what a probe said: an empty `fault` puts the worker in rotation, another takes it out at once."""
        if worker.fault == fault:
            return
        worker.fault = fault
        if self._by_address.get(worker.member.address) is worker:
            self._place(worker)
        if fault:
            worker.abandon_legs(fault)
        self.notify()

    def scraped(self, worker: Worker) -> None:
        """Have placement know what a worker says of itself, or that it says nothing any more."""
        usage = worker.figures.kv_usage
        worker.account.reported(
            in_flight=worker.in_flight(),
            kv_usage=None if isinstance(usage, Unknown) else usage,
            now_s=time.monotonic(),
        )
        self.dispatcher.roster.rank(worker.account)

    def prefill_ended(self, worker: Worker, leg: Leg, *, served: bool, at_fault: bool) -> None:
        """Account for the end of a prompt that was sent to a prefill worker."""
        self.dispatcher.prefill_ended(worker.account, leg, now_s=time.monotonic(), served=served, at_fault=at_fault)
        if served:
            worker.prefill_served(leg, now_unix_s=time.time())
        self.freed()

    def decode_moved(self, worker: Worker, to: Worker, context_tokens: int) -> None:
        """Account for a request that Envoy has sent to another worker, since the first one failed it."""
        self.dispatcher.decode_ended(worker.account, context_tokens)
        self.dispatcher.roster.failed(worker.account, now_s=time.monotonic())
        to.account.decode_sent(context_tokens)
        to.sent_in_epoch += 1
        self.dispatcher.roster.rank(to.account)

    def decode_ended(self, worker: Worker, context_tokens: int, *, served: bool) -> None:
        """Account for the end of a request that a worker generated for."""
        self.dispatcher.decode_ended(worker.account, context_tokens)
        worker.decodes_served += served
        if served:
            self.dispatcher.succeeded(worker.account)

    def _place(self, worker: Worker) -> None:
        self.dispatcher.changed(worker.account, role=worker.member.role, in_rotation=not worker.why_not)

    def on_freed(self, listener: MembershipListener) -> None:
        """Call `listener` after each change by which somebody who waits may be served."""
        self._free_listeners.append(listener)

    def freed(self) -> None:
        """Have those asked who may serve somebody who waits."""
        for listener in self._free_listeners:
            listener()

    def notify(self) -> None:
        """Wake whoever waits for a change."""
        self._changed.set()
        self._changed = asyncio.Event()
        self.freed()

    async def changed(self, *, timeout_s: float) -> bool:
        """Wait until a worker changes; return False if none did in time."""
        event = self._changed
        try:
            async with asyncio.timeout(timeout_s):
                await event.wait()
        except TimeoutError:
            return False
        return True
