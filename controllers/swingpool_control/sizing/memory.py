"""What the sizing loop remembers from one step to the next, and what a step returns."""

from dataclasses import dataclass, field

from swingpool_control.actions import Action
from swingpool_control.api.status import Plan
from swingpool_control.sizing.advice import Advice
from swingpool_control.sizing.capacity import Shape
from swingpool_control.sizing.coming import ComingMemory
from swingpool_control.sizing.traffic import Traffic
from swingpool_control.swing.idle import Idle
from swingpool_control.swing.rates import Totals

PERIOD_S = 15.0
"""How often sizing decides."""

DRAIN_PERIOD_S = 2.0
"""How often it looks while workers drain, so that an empty one ends soon."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lower:
    """The fewest workers that were enough at one moment, by pool."""

    at_unix_s: float
    workers: tuple[tuple[str, int], ...]
    prompt_tokens_per_s: float | None = None
    """What they are enough for; None if that is not known."""
    output_tokens_per_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reckoned:
    """What a step reckoned with."""

    at_unix_s: float
    prompt_tokens_per_s: float
    """Arriving."""
    running_per_s: float
    """Requests whose tokens were generated."""
    ran_unix_s: float
    """When: half a step ago at the least, for what comes to be compared with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SizingMemory:
    """Memory of the sizing loop. Losing it only delays a scale-down: drains stand on the pods."""

    lower: tuple[Lower, ...] = ()
    """Over the scale-down window, oldest first."""
    idle: tuple[Idle, ...] = ()
    shape: Shape | None = None
    traffic: Traffic | None = None
    """What the last plan reckoned with; it is held while what comes in is much alike."""
    coming: ComingMemory = field(default_factory=ComingMemory)
    """What the forecast stands on."""
    totals: tuple[Totals, ...] = ()
    """What had arrived at each observation of the last seconds."""
    reckoned: Reckoned | None = None
    """What the last step reckoned with; None if it knew of nothing."""
    advice: Advice | None = None
    """To the swing loop, by the last step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SizingResult:
    """What a step of the sizing loop asks for."""

    actions: tuple[Action, ...]
    plan: Plan
    memory: SizingMemory = field(default_factory=SizingMemory)
    summary: str = ""
    """One line for the log; the same line for the same decision."""
    next_step_s: float = PERIOD_S
    """When to call again, at the latest; shorter while workers drain."""
