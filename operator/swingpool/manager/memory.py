"""What the manager remembers of one cluster between rounds. All may be lost: it stands on pods, children and status."""

from dataclasses import dataclass, field
from typing import Any

from swingpool.kube import Object
from swingpool_control.api.status import FlipRecord, Plan
from swingpool_control.sizing.memory import SizingMemory
from swingpool_control.sizing.speed import SpeedMemory
from swingpool_control.swing.memory import SwingMemory


@dataclass(frozen=True, slots=True)
class Applied:
    """What the server made of a manifest that was applied."""

    desired_hash: str
    projection: Any


@dataclass(slots=True, kw_only=True)
class Due:
    """When something is to be done next, on the loop's clock; 0 for at once."""

    at: float = 0.0
    failures: int = 0

    def now(self, time: float) -> bool:
        """Whether it is time."""
        return time >= self.at


@dataclass(slots=True, kw_only=True)
class ClusterMemory:
    """Memory of one cluster, by its uid: a new cluster of the same name starts anew."""

    uid: str
    children: Due = field(default_factory=Due)
    """When children are compared next; any event of a child or of the cluster makes it at once."""
    sizing: Due = field(default_factory=Due)
    swing: Due = field(default_factory=Due)
    status: Due = field(default_factory=Due)
    sized_generation: int = -1
    applied: dict[tuple[str, str], Applied] = field(default_factory=dict)
    """By kind and name of the child."""
    tried_generation: int = -1
    """Generation of the spec whose children were compared last, with success or without."""
    applied_generation: int = 0
    apply_error: str = ""
    plan: Plan | None = None
    flips: tuple[FlipRecord, ...] = ()
    sizing_memory: SizingMemory = field(default_factory=SizingMemory)
    swing_memory: SwingMemory = field(default_factory=SwingMemory)
    speed: SpeedMemory = field(default_factory=SpeedMemory)
    uncertain: dict[str, float] = field(default_factory=dict)
    """By uid, workers of which nobody knows whether their last change was made, and until when they count as such."""
    written_status: Object | None = None
    """What was asked for last, and what the server made of it."""
    stored_status: Object | None = None
    last_good: Object | None = None
    """The newest version of the cluster whose spec can be used."""
    said: dict[str, str] = field(default_factory=dict)
    """Last line that each loop logged."""
