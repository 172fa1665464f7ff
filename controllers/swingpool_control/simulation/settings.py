"""What a simulation is told beside the cluster's spec and its traffic."""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from swingpool_control.simulation.policies.catalogue import OURS
from swingpool_control.simulation.policies.interface import Policy
from swingpool_control.simulation.tariff import NO_TARIFF, Tariff
from swingpool_control.simulation.traffic import Arrival

START_UNIX_S: Final = 1_767_225_600.0
"""Unix time at which every simulation begins: 2026-01-01T00:00:00Z."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Latencies:
    """How long the live system takes for what is no computation; seconds."""

    hop_s: float = 0.001
    """From the router to a worker."""
    watch_s: float = 0.1
    """From a change of a pod to the picker's knowledge of it."""
    probe_s: float = 0.5
    """From a worker's first answer, or its last, to the picker's probe that notices."""
    access_log_s: float = 0.5
    """Between two entries of a running request: so late a first token is known."""
    scrape_period_s: float = 1.0
    controller_s: float = 0.5
    """From new replicas to their pods' creation, or to the deletion of those beyond."""
    terminate_s: float = 1.0
    """From an empty worker's SIGTERM to the end of its pod."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failures:
    """What goes wrong, on the average."""

    crashes_per_worker_hour: float = 0.0
    hangs_per_worker_hour: float = 0.0
    hang_s: float = 20.0
    """How long a worker that hangs does nothing; then it goes on where it stood."""
    slow_per_worker_hour: float = 0.0
    slowness: float = 3.0
    """How many times as long everything takes on a worker that is slow."""
    slow_s: float = 120.0
    """How long it is."""
    silences_per_worker_hour: float = 0.0
    silence_s: float = 60.0
    """How long a worker that works on tells no figures."""
    transfer_share: float = 0.0
    """Share of KV transfers that fail, 0-1."""
    restart_s: float = 1.0
    """From a crash to the container's new start, before the engine's own start-up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How to simulate."""

    policy: Policy = OURS
    future: Callable[[], Iterable[Arrival]] | None = None
    """The same requests again, for a policy that is clairvoyant."""
    latencies: Latencies = Latencies()
    failures: Failures = Failures()
    tariff: Tariff = NO_TARIFF
    replicas: Mapping[str, int] = field(default_factory=dict)
    """Workers that are ready at the start, by pool; a pool that is missing has its `replicas.min` or `count`."""
    accelerators: int | None = None
    """How many there are for all pods together; pods beyond them wait until others end. None is as many as it takes."""
    startup_s: float | None = None
    """Seconds from a pod's creation to its first answer; None is what each pool's profile says."""
    swing_period_s: float = 1.0
    queue_timeout_s: float = 30.0
    overload: bool = False
    """Whether requests are refused that would wait for too long, by the spec, where placement is the live one."""
    window_s: float = 15.0
    prefix_caching: bool = True
    """Whether workers keep computed blocks; False is faster, and the same for traffic without prefixes."""
    fabric_links: float = math.inf
    """How many workers' links the network between workers carries at once; infinite if it never is too narrow."""
    coalesce: bool = True
    """Whether iterations that cannot differ are computed at once; it changes no result."""
