"""What each role must sustain: what arrives, and what waits already."""

from dataclasses import dataclass

from swingpool_control import names
from swingpool_control.sizing.backlog import Backlog
from swingpool_control.sizing.demand import Demand
from swingpool_control.sizing.traffic import Traffic

BACKLOG_S = 40.0
"""Time in which what waits shall be worked off beside what arrives. Workers that only this needs are paid for while
they start, so that fewer of them for longer cost less."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """What the workers of each role must sustain within the objectives."""

    prefill_per_s: float
    """Requests per second."""
    decode_per_s: float
    kv_tokens: float
    """KV cache that decode workers must hold."""

    @classmethod
    def nothing(cls) -> "Need":
        """Return the need of a cluster without requests: one worker in each role."""
        return cls(prefill_per_s=0.0, decode_per_s=0.0, kv_tokens=0.0)

    def by_role(self) -> dict[str, float]:
        """Return requests per second by role."""
        return {names.ROLE_PREFILL: self.prefill_per_s, names.ROLE_DECODE: self.decode_per_s}

    def scaled(self, factor: float) -> "Need":
        """Return the same need, larger by a factor."""
        return Need(
            prefill_per_s=self.prefill_per_s * factor,
            decode_per_s=self.decode_per_s * factor,
            kv_tokens=self.kv_tokens * factor,
        )

    def at_least(self, other: "Need") -> "Need":
        """Return what covers both."""
        return Need(
            prefill_per_s=max(self.prefill_per_s, other.prefill_per_s),
            decode_per_s=max(self.decode_per_s, other.decode_per_s),
            kv_tokens=max(self.kv_tokens, other.kv_tokens),
        )


def arriving(demand: Demand, traffic: Traffic) -> Need:
    """Return the need of what arrives, once nothing waits.

    Args:
        demand: what is asked now.
        traffic: its lengths; prompt tokens are counted in prompts of the mean length.
    """
    lengths = traffic.lengths
    return Need(
        prefill_per_s=demand.prompt_tokens_per_s / max(1.0, lengths.mean_prompt_tokens),
        decode_per_s=demand.requests_per_s,
        kv_tokens=0.0,
    )


def running_per_s(demand: Demand, traffic: Traffic, *, itl_s: float) -> float:
    """Return requests per second whose tokens are generated now.

    Args:
        demand: what is asked now.
        traffic: its lengths.
        itl_s: the tightest ITL objective: with it, so many sequences ask for so many requests per second.
    """
    output = max(1.0, traffic.lengths.mean_output_tokens)
    return max(demand.generated_tokens_per_s, demand.sequences / itl_s) / output


def now(demand: Demand, traffic: Traffic, *, ttft_s: float, running: float, waiting: Backlog) -> Need:
    """Return the need of what arrives and of what waits or runs already.

    Args:
        demand: what is asked now.
        traffic: its lengths.
        ttft_s: the tightest TTFT objective: while requests wait for longer, what runs is what a backlog sends.
        running: requests per second whose tokens are generated, now and a step ago: a moment's clump is no need, since
            what workers sustain allows for such.
        waiting: what waits, or will when new workers can start on it. Its answers come as fast as its prompts.
    """
    lengths = traffic.lengths
    coming = arriving(demand, traffic)
    decode_per_s = coming.decode_per_s + waiting.requests / BACKLOG_S
    if waiting.requests <= ttft_s * coming.decode_per_s:
        decode_per_s = max(decode_per_s, running)
    return Need(
        prefill_per_s=coming.prefill_per_s + waiting.prompt_tokens / BACKLOG_S / max(1.0, lengths.mean_prompt_tokens),
        decode_per_s=decode_per_s,
        kv_tokens=max(demand.kv_tokens, demand.sequences * lengths.mean_context_tokens),
    )
