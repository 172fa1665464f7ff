"""Who leads: a Lease of our own, so that two managers never write at once.

A leader renews it every `retry_s` and counts itself as leading only for `deadline_s` after the last renewal that
succeeded, measured on its own monotonic clock from before the call. Another may take it `duration_s` after it last saw
it change. Deadline plus the longest call is less than the duration, so the old leader's last write is over by then.
"""

import asyncio
import logging
import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from swingpool.kube import Kube, KubeError, Object
from swingpool.kube.kinds import LEASE
from swingpool.kube.objects import field, metadata

log = logging.getLogger(__name__)


class NotLeadingError(Exception):
    """A write was about to happen without a fresh lease."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseSettings:
    """Where the Lease stands, who we are, and how patient everybody is."""

    namespace: str
    name: str
    identity: str
    duration_s: float = 30.0
    deadline_s: float = 20.0
    retry_s: float = 4.0


class Leadership:
    """Our part in the Lease.

    Args:
        kube: the client; its calls must end within `duration_s - deadline_s`.
        settings: see `LeaseSettings`.
        monotonic: a clock that never goes back, in seconds.
        utc: the wall clock, for what is written.
        beat: called after each attempt to take or to renew it.
    """

    def __init__(
        self,
        kube: Kube,
        settings: LeaseSettings,
        *,
        monotonic: Callable[[], float],
        utc: Callable[[], datetime] = lambda: datetime.now(UTC),
        beat: Callable[[], None] = lambda: None,
    ) -> None:
        self._kube = kube
        self.settings = settings
        self._monotonic = monotonic
        self._utc = utc
        self._beat = beat
        self._renewed: float | None = None
        self.holder = ""
        """Who holds it, as far as we saw; empty if nobody does, or before the first look."""
        self._seen: tuple[str, float] | None = None

    @property
    def held(self) -> bool:
        """Whether we lead now."""
        return self._renewed is not None and self._monotonic() - self._renewed < self.settings.deadline_s

    def check(self) -> None:
        """Refuse a write without a fresh lease.

        Raises:
            NotLeadingError: we do not lead, or no longer know that we do.
        """
        if not self.held:
            raise NotLeadingError(
                f"{self.settings.identity} does not hold {self.settings.namespace}/{self.settings.name}"
            )

    async def acquire(self) -> None:
        """Return once we lead."""
        told = ""
        while not await self._attempt():
            if self.holder != told:
                told = self.holder
                log.info("waiting for the lease", extra={"holder": told})
            await asyncio.sleep(self.settings.retry_s * (0.5 + random.random() / 2))  # noqa: S311
        log.info("leading", extra={"identity": self.settings.identity})

    async def keep(self) -> None:
        """Renew the lease; return once it is lost."""
        while self.held:
            await asyncio.sleep(self.settings.retry_s)
            await self._attempt()
        log.error("the lease is lost")

    async def release(self) -> None:
        """Give the lease up at once, so that the next leader need not wait."""
        if not self.held:
            return
        self._renewed = None
        try:
            lease = await self._kube.get(LEASE, self.settings.name, namespace=self.settings.namespace)
            if field(lease, "spec", "holderIdentity") == self.settings.identity:
                await self._kube.replace(self._written(lease, holder=""))
                log.info("stepped down")
        except KubeError as error:
            log.warning("the lease could not be released; it will expire", extra={"error": str(error)})

    async def _attempt(self) -> bool:
        """Take or renew the lease if it can be done; True if we hold it."""
        asked = self._monotonic()
        self._beat()
        try:
            lease = await self._read()
            if not self._may_take(lease):
                self._renewed = None
                return False
            await self._kube.replace(self._written(lease, holder=self.settings.identity))
        except KubeError as error:
            # Somebody was faster, or nobody answers: what we hold stays fresh for its deadline and no longer.
            log.log(
                logging.INFO if error.conflict else logging.WARNING, "no lease this time", extra={"error": str(error)}
            )
            return False
        self._renewed = asked
        return True

    async def _read(self) -> Object:
        try:
            return await self._kube.get(LEASE, self.settings.name, namespace=self.settings.namespace)
        except KubeError as error:
            if not error.not_found:
                raise
        return await self._kube.create(
            {
                "apiVersion": LEASE.api_version,
                "kind": LEASE.kind,
                "metadata": {"name": self.settings.name, "namespace": self.settings.namespace},
                "spec": {},
            }
        )

    def _may_take(self, lease: Object) -> bool:
        """Whether it is ours, free, or has not changed for as long as its holder asked for."""
        self.holder = field(lease, "spec", "holderIdentity") or ""
        if self.holder in ("", self.settings.identity):
            return True
        version, now = str(metadata(lease).get("resourceVersion")), self._monotonic()
        if self._seen is None or self._seen[0] != version:
            self._seen = (version, now)
        patience_s = field(lease, "spec", "leaseDurationSeconds") or self.settings.duration_s
        return now - self._seen[1] > patience_s

    def _written(self, lease: Object, *, holder: str) -> Object:
        """Return the lease as it shall be; `resourceVersion` stays, so that a race has one winner."""
        spec = dict(lease.get("spec") or {})
        now = self._utc().isoformat(timespec="microseconds").replace("+00:00", "Z")
        if holder and spec.get("holderIdentity") != holder:
            spec["acquireTime"] = now
            spec["leaseTransitions"] = int(spec.get("leaseTransitions") or 0) + 1
        spec["holderIdentity"] = holder
        spec["renewTime"] = now
        spec["leaseDurationSeconds"] = max(1, round(self.settings.duration_s))
        return {**lease, "spec": spec}
