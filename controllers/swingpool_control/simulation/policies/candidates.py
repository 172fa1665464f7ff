"""What a rule that places requests at once sees of them and of the workers, and what it may decide."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One worker at one moment."""

    worker: str
    """Its address; unique."""
    role: str
    """Value of its role label."""
    in_rotation: bool
    """Whether it may get requests at all: ready, answering, not draining, not being deleted."""
    pending_prefill_tokens: int = 0
    """Prompt tokens sent to it for prefill and not computed yet."""
    prefills_in_flight: int = 0
    decodes_in_flight: int = 0
    """Requests that generate on it."""
    decode_context_tokens: int = 0
    """KV cache that those read at each step: their prompts, and what of their answers is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementRequest:
    """One request, as far as placement cares."""

    prompt_tokens: int
    whole_because: str = ""
    """Why it must not be split between two workers; empty if it may be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """Compute the prompt on one worker, generate on another."""

    prefill: str
    decode: tuple[str, ...]
    """Where to generate: the choice, then the others in the order in which to try them."""
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Whole:
    """Let one worker do both."""

    workers: tuple[str, ...]
    """The choice, then the others in the order in which to try them."""
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """No worker may get the request now."""

    why: str


Placement = Split | Whole | Hold
