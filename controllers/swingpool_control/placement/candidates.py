"""What placement knows of a worker and of a request. Later policies (prefix affinity, deflection) add fields here."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One worker at one moment."""

    worker: str
    """`ip:port` of its HTTP API; unique."""
    role: str
    """Value of its role label."""
    in_rotation: bool
    """Whether it may get requests at all: ready, answering, not draining, not being deleted."""
    pending_prefill_tokens: int = 0
    """Prompt tokens sent to it for prefill and not computed yet."""
    prefills_in_flight: int = 0
    decodes_in_flight: int = 0
    """Requests that generate on it, as far as this picker sent them."""
    decode_context_tokens: int = 0
    """KV cache that those read at each step: their prompts, and what of their answers is known."""
    others_in_flight: int = 0
    """Requests that it runs beyond those, by its own metrics: other pickers', or from before this one started."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementRequest:
    """One request, as far as placement cares."""

    prompt_tokens: int
    """Exact, or estimated."""
    whole_because: str = ""
    """Why it must not be split between two workers; empty if it may be."""
