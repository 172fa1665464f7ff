"""Totals that every serving system exports as counters; a policy reads them and looks at what they grew by."""

from dataclasses import dataclass, replace
from typing import Self

from swingpool_control.simulation.outcome import Outcome
from swingpool_control.simulation.traffic import Arrival


@dataclass(slots=True, kw_only=True)
class Counters:
    """Totals since the beginning. Latencies are counted when their request ends, lengths when it completes."""

    started: int = 0
    """Requests that arrived."""
    started_prompt_tokens: int = 0
    completed: int = 0
    prompt_tokens: int = 0
    """Of requests that completed."""
    output_tokens: int = 0
    """Of requests that completed."""
    first_tokens: int = 0
    ttft_s: float = 0.0
    """Sum over first tokens."""
    gaps: int = 0
    """Between two tokens of a request that completed."""
    gaps_s: float = 0.0
    duration_s: float = 0.0
    """Sum over requests that completed."""

    def arrived(self, arrival: Arrival) -> None:
        """Count a request that arrived."""
        self.started += 1
        self.started_prompt_tokens += arrival.prompt_tokens

    def ended(self, outcome: Outcome) -> None:
        """Count a request that ended."""
        ttft_s = outcome.ttft_s
        if ttft_s is not None:
            self.first_tokens += 1
            self.ttft_s += ttft_s
        if outcome.result != "completed" or outcome.first_s is None:
            return
        self.completed += 1
        self.prompt_tokens += outcome.arrival.prompt_tokens
        self.output_tokens += outcome.arrival.output_tokens
        self.gaps += outcome.arrival.output_tokens - 1
        self.gaps_s += outcome.end_s - outcome.first_s
        self.duration_s += outcome.end_s - outcome.arrival.at_s

    def copy(self) -> Self:
        """Return the totals as they are now."""
        return replace(self)

    def since(self, before: "Counters") -> "Counters":
        """Return what was counted after an earlier copy."""
        return Counters(
            started=self.started - before.started,
            started_prompt_tokens=self.started_prompt_tokens - before.started_prompt_tokens,
            completed=self.completed - before.completed,
            prompt_tokens=self.prompt_tokens - before.prompt_tokens,
            output_tokens=self.output_tokens - before.output_tokens,
            first_tokens=self.first_tokens - before.first_tokens,
            ttft_s=self.ttft_s - before.ttft_s,
            gaps=self.gaps - before.gaps,
            gaps_s=self.gaps_s - before.gaps_s,
            duration_s=self.duration_s - before.duration_s,
        )
