"""What the manager is started with."""

from dataclasses import dataclass, field
from pathlib import Path

from swingpool.manager.lease import LeaseSettings
from swingpool.manager.rounds import Periods
from swingpool.telemetry.prometheus import Address
from swingpool_control import names
from swingpool_control.resources.settings import RenderSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Options of the manager's process."""

    lease: LeaseSettings
    rendering: RenderSettings
    namespaces: tuple[str, ...] = ()
    """Where to work; empty for everywhere. With namespaces, nothing is listed or watched cluster-wide."""
    kubeconfig: Path | None = None
    pod_name: str = ""
    periods: Periods = field(default_factory=Periods)
    resync_s: float = 300.0
    """How often everything is listed anew, whatever the watches say."""
    call_timeout_s: float = 5.0
    """Longest answer of the API server; less than the lease's duration minus its deadline."""
    health_port: int = names.PORT_MANAGER_HEALTH
    metrics_port: int = names.PORT_MANAGER_METRICS
    host: str = "0.0.0.0"  # noqa: S104 - probes and scrapes come to the pod's address
    picker_port: int = names.PORT_PICKER_HTTP
    prometheus: Address | None = None
    """Asked for the load of clusters that name it as their source; None: there is none to ask."""
    round_workers: int = 8
    """Clusters that may be in a round at once."""
