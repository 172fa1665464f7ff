"""What the swing loop remembers from one step to the next, and what a step returns."""

from dataclasses import dataclass, field, replace

from swingpool_control.actions import Action
from swingpool_control.api.status import FlipRecord
from swingpool_control.placement.limits import DeflectionLimits
from swingpool_control.sizing.advice import Advice
from swingpool_control.sizing.capacity import Shape
from swingpool_control.sizing.demand import DEFAULT_SHAPE, Demand
from swingpool_control.swing.balance import Balance
from swingpool_control.swing.evidence import Evidence
from swingpool_control.swing.growth import Generating
from swingpool_control.swing.idle import Idle
from swingpool_control.swing.rates import Totals


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingPatch:
    """A change of role that was asked for and is not seen on the pod yet."""

    uid: str
    role: str
    """The role label that it shall get."""
    target: str
    """The role that it shall serve in the end."""
    asked_unix_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SwingMemory:
    """Memory of the swing loop. Losing it is safe: everything that must survive stands on pods and in the status."""

    demand: Demand | None = None
    """What the newest observation showed; None after one that was unknown."""
    shape: Shape = DEFAULT_SHAPE
    """Lengths of the requests that were seen last."""
    totals: tuple[Totals, ...] = ()
    """What had arrived at each observation of the last seconds."""
    decoding: Generating | None = None
    """What decode held at the observation that was weighed last."""
    evidence: tuple[Evidence, ...] = ()
    """What speaks for giving workers to either role."""
    weighed_unix_s: float | None = None
    """When the router saw what was weighed last."""
    balance: tuple[Balance, ...] = ()
    """How each role is, and since when."""
    advice: Advice | None = None
    """What sizing last said of roles."""
    limits: DeflectionLimits | None = None
    """What pickers were told last; None if they go by the spec."""
    flips: tuple[FlipRecord, ...] = ()
    """Newest first."""
    pending: tuple[PendingPatch, ...] = ()
    idle: tuple[Idle, ...] = ()
    """Workers that drain and hold nothing."""
    unserved: tuple[tuple[str, float], ...] = ()
    """Roles that no worker serves, and since when."""
    router_seen_unix_s: float | None = None
    """When the router was known last; None if it never was."""

    def refused(self, uid: str) -> "SwingMemory":
        """Forget a change of role that the API server refused for certain, so that it is decided anew."""
        return replace(self, pending=tuple(p for p in self.pending if p.uid != uid))


@dataclass(frozen=True, slots=True, kw_only=True)
class SwingResult:
    """What a step of the swing loop asks for."""

    actions: tuple[Action, ...] = ()
    flips: tuple[FlipRecord, ...] = ()
    """All flips now known, newest first; they belong into the status."""
    memory: SwingMemory = field(default_factory=SwingMemory)
    summary: str = ""
    """One line for the log; the same line for the same decision."""
