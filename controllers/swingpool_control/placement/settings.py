"""What placement goes by: the order of waiting prompts, request classes, when to refuse, how far ahead to bind."""

import math
from dataclasses import dataclass
from typing import Final

from swingpool_control.placement.limits import NO_DEFLECTION, DeflectionLimits

STANDARD: Final = "standard"
"""Name of the class of requests that name none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestClass:
    """Requests that are alike in how urgent they are."""

    name: str = STANDARD
    priority: int = 0
    """Higher goes first; among those that wait and among those that stay when some are refused."""
    ttft_s: float = 1.0
    """Objective of their time to first token; who has less time weighs more among equal priorities."""
    age_s: float = 10.0
    """Whoever has waited so long goes before all that have not, in the order of arrival."""
    most_wait_s: float = math.inf
    """A request whose predicted wait is longer is refused at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementSettings:
    """All of it."""

    classes: tuple[RequestClass, ...] = (RequestClass(),)
    """At least one; the first is that of requests that name none, or one that is not among them."""
    aging: float = 2.0
    """Seconds of predicted prompt time that a second of waiting outweighs."""
    most_queued_tokens: float = math.inf
    """Prompt tokens that may wait; a request that would go beyond is refused."""
    tenant_quantum_s: float = 1.0
    """Prefill seconds by which one tenant may be ahead of another that waits too."""
    hop_s: float = 0.002
    """From the router to a worker."""
    lead_s: float = 0.004
    """How long before a worker is free it gets its next prompts, at least."""
    lead_share: float = 0.05
    """And as a share of the iteration under way, since the model may be off by as much."""
    saving_weight: float = 5.0
    """What a second of a prefill worker's time is worth against a second of a request's wait: at 0 a prompt waits for a
    worker that has its prefix only if it is served sooner there."""
    resident_weight: float = 0.02
    """What a second's wait of one whose tokens a decode worker generates counts against a prompt that is computed there
    sooner than elsewhere."""
    spare_patience: float = 4.0
    """Full iterations, over the number of pickers, for which a prompt waits before it goes to a worker of another's
    part: a smaller part runs out of free workers sooner."""
    prefix_ttl_s: float = 600.0
    """How long a worker is believed to have a prefix that nobody has used again."""
    pass_priority: bool = False
    """Whether workers order requests by priority themselves, and are told it."""
    limits: DeflectionLimits = NO_DEFLECTION
    """Until the swing controller says otherwise."""
