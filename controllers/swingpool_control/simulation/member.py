"""One worker as the simulated picker tracks it: the counterpart of the live picker's own accounting."""

from dataclasses import dataclass

from swingpool_control import names
from swingpool_control.figures import Figure, Unknown
from swingpool_control.observation import WorkerObservation
from swingpool_control.placement.account import Account
from swingpool_control.simulation.pods import Pod
from swingpool_control.simulation.settings import START_UNIX_S

_NOT_SERVED = Unknown("it has served nothing in this role yet")
_NOT_SCRAPED = Unknown("it was not scraped yet")


@dataclass(slots=True, kw_only=True, eq=False)
class Member:
    """What the picker knows of a worker, and what it sent to it."""

    pod: Pod
    account: Account
    role: str
    role_since_s: float
    fault: str = "it has not answered a probe yet"
    """Why it is out of rotation; empty if it is in."""
    prefills_served: int = 0
    decodes_served: int = 0
    first_served_s: float | None = None
    running: Figure = _NOT_SCRAPED
    waiting: Figure = _NOT_SCRAPED
    kv_usage: Figure = _NOT_SCRAPED
    scraped_unix_s: Figure = _NOT_SCRAPED

    @property
    def address(self) -> str:
        """The pod's name."""
        return self.account.worker

    @property
    def in_rotation(self) -> bool:
        """Whether it gets requests."""
        return not self.fault and self.role in (names.ROLE_PREFILL, names.ROLE_DECODE)

    def became(self, *, role: str, fault: str, now_s: float) -> None:
        """Take over the pod's newer state."""
        if role != self.role:
            self.role, self.role_since_s, self.first_served_s = role, now_s, None
        self.fault = fault

    def prefill_served(self, *, epoch: int, now_s: float) -> None:
        """Note a prompt that it has computed."""
        self.prefills_served += 1
        self.served(names.ROLE_PREFILL, epoch=epoch, at_s=now_s)

    def served(self, role: str, *, epoch: int, at_s: float) -> None:
        """Note the first request that it served in its present role."""
        if epoch == self.account.epoch and role == self.role and self.first_served_s is None:
            self.first_served_s = at_s

    def scrape(self, *, now_s: float, shared: bool) -> None:
        """Read its own figures.

        Args:
            now_s: the time.
            shared: whether others send it requests too, of which only its figures tell.
        """
        runner = self.pod.runner
        runner.look()  # what one did that tells nothing is counted all the same, as it happened
        if self.fault or now_s < max(self.pod.hangs_until_s, self.pod.silent_until_s):
            return
        running, waiting, kv_usage = float(runner.engine.running), float(runner.engine.waiting), runner.engine.kv_usage
        self.running, self.waiting, self.kv_usage = running, waiting, kv_usage
        self.scraped_unix_s = START_UNIX_S + now_s
        if shared:
            self.account.reported(in_flight=running + waiting, kv_usage=kv_usage, now_s=now_s)

    def observation(self) -> WorkerObservation:
        """Return the worker as the manager sees it."""
        served = self.first_served_s
        return WorkerObservation(
            pod=self.pod.name,
            address=self.address,
            role=self.role,
            role_since_unix_s=START_UNIX_S + self.role_since_s,
            in_rotation=self.in_rotation,
            why_not="" if self.in_rotation else self.fault or f"its role is {self.role!r}",
            pending_prefill_tokens=self.account.pending_prefill_tokens,
            prefills_in_flight=self.account.prefills_in_flight,
            decodes_in_flight=self.account.decodes_in_flight,
            prefills_served=self.prefills_served,
            decodes_served=self.decodes_served,
            first_served_in_role_unix_s=_NOT_SERVED if served is None else START_UNIX_S + served,
            running=self.running,
            waiting=self.waiting,
            kv_usage=self.kv_usage,
            scraped_unix_s=self.scraped_unix_s,
            slowness=self.account.slowness if self.prefills_served else _NOT_SERVED,
        )


def fault_of(pod: Pod, now_s: float) -> str:
    """Return why a pod is out of rotation, as a picker sees it; empty if it is in."""
    if pod.deleting:
        return "its pod is being deleted"
    if not pod.ready:
        return "its pod is not ready"
    return "it does not answer" if now_s < pod.hangs_until_s else ""
