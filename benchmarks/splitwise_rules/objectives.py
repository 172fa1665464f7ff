"""Splitwise's objectives: nine percentiles of how much slower a request is than alone on a DGX-A100."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.splitwise_rules.times import Times
from swingpool_control.simulation.outcome import Outcome

LIMITS: Mapping[str, Mapping[int, float]] = {
    "ttft": {50: 2.0, 90: 3.0, 99: 6.0},
    "tbt": {50: 1.25, 90: 1.5, 99: 5.0},
    "e2e": {50: 1.25, 90: 1.5, 99: 5.0},
}
"""By metric and percentile."""


@dataclass(frozen=True, kw_only=True)
class Slowdowns:
    """What a run came to."""

    values: Mapping[str, float]
    """By metric and percentile, as `ttft_p50`."""
    served: bool
    """Whether every request was."""

    @property
    def broken(self) -> tuple[str, ...]:
        """The objectives that do not hold."""
        return tuple(
            name
            for metric, by_percentile in LIMITS.items()
            for percentile, limit in by_percentile.items()
            if self.values[name := f"{metric}_p{percentile}"] > limit
        )

    @property
    def holds(self) -> bool:
        """Whether all nine do."""
        return self.served and not self.broken

    @property
    def tightest(self) -> float:
        """The largest share of its limit that a percentile takes."""
        return max(
            self.values[f"{metric}_p{percentile}"] / limit
            for metric, by_percentile in LIMITS.items()
            for percentile, limit in by_percentile.items()
        )


def slowdowns(outcomes: Sequence[Outcome], first_s: Mapping[int, float], alone: Times) -> Slowdowns:
    """Return the percentiles.

    TBT is the time from the first token to the last, over all tokens instead of all but the first: so it is published.

    Args:
        outcomes: all requests.
        first_s: when split requests' first tokens were there.
        alone: the times of the machine that they are measured against.
    """
    found: dict[str, list[float]] = {metric: [] for metric in LIMITS}
    served = 0
    for one in outcomes:
        prompt, output = one.arrival.prompt_tokens, one.arrival.output_tokens
        first = first_s.get(one.number, one.first_s)
        if first is None or one.result != "completed":
            continue
        served += 1
        token_s = alone.token.whole[prompt]
        alone_s = alone.prompt.whole[prompt]
        found["ttft"].append((first - one.arrival.at_s) / alone_s)
        found["tbt"].append((one.end_s - first) / output / token_s)
        found["e2e"].append((one.end_s - one.arrival.at_s) / (alone_s + token_s * (output - 1)))
    values = {
        f"{metric}_p{percentile}": float(np.percentile(found[metric], percentile))
        for metric, by_percentile in LIMITS.items()
        for percentile in by_percentile
    }
    return Slowdowns(values=values, served=served == len(outcomes))
