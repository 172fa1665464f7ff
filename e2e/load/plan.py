"""What load to send: phases, their arrivals and their lengths, all drawn from one seed, so that a run repeats."""

import dataclasses
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

LONGEST_OF_MEAN = 4.0
"""A drawn length is at most so many times its mean: one monster request must not decide a short run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths:
    """Lengths in tokens: log-normal around `mean`, as real prompts and answers are; all alike if `sigma` is 0."""

    mean: float
    sigma: float = 0.0

    def draw(self, rng: random.Random) -> int:
        """Return one length, at least 1."""
        if self.sigma == 0:
            return max(1, round(self.mean))
        factor = rng.lognormvariate(-self.sigma * self.sigma / 2, self.sigma)
        return max(1, round(self.mean * min(factor, LONGEST_OF_MEAN)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """A stretch of load with one character."""

    name: str
    seconds: float
    requests_per_s: float
    prompt_tokens: Lengths
    output_tokens: Lengths
    arrivals: Literal["poisson", "uniform"] = "poisson"
    stream_share: float = 1.0
    chat_share: float = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A whole run."""

    url: str
    """Where the endpoint listens, such as `http://10.96.3.7`, without `/v1`."""
    model: str
    phases: tuple[Phase, ...]
    seed: int = 1
    request_timeout_s: float = 60.0
    max_in_flight: int = 4000
    """Arrivals beyond it fail at once: the run stays bounded and the failure is told."""
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def seconds(self) -> float:
        """Length of all phases; the last answers come later."""
        return sum(phase.seconds for phase in self.phases)


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """One request to send."""

    number: int
    phase: str
    at_s: float
    """When it is due, from the start of the run."""
    prompt_tokens: int
    output_tokens: int
    stream: bool
    chat: bool


def arrivals(plan: Plan) -> Iterator[Arrival]:
    """Yield a run's requests in the order in which they are due."""
    rng = random.Random(plan.seed)
    number, start_s = 0, 0.0
    for phase in plan.phases:
        at_s = start_s
        while phase.requests_per_s > 0:
            mean_s = 1.0 / phase.requests_per_s
            at_s += rng.expovariate(phase.requests_per_s) if phase.arrivals == "poisson" else mean_s
            if at_s >= start_s + phase.seconds:
                break
            number += 1
            yield Arrival(
                number=number,
                phase=phase.name,
                at_s=at_s,
                prompt_tokens=phase.prompt_tokens.draw(rng),
                output_tokens=phase.output_tokens.draw(rng),
                stream=rng.random() < phase.stream_share,
                chat=rng.random() < phase.chat_share,
            )
        start_s += phase.seconds


def to_json(plan: Plan) -> dict[str, Any]:
    """Return a plan as plain data."""
    return dataclasses.asdict(plan)


def from_json(data: dict[str, Any]) -> Plan:
    """Read a plan from plain data.

    Raises:
        TypeError: a field is missing or unknown.
    """
    phases = tuple(
        Phase(
            **{
                **phase,
                "prompt_tokens": Lengths(**phase["prompt_tokens"]),
                "output_tokens": Lengths(**phase["output_tokens"]),
            }
        )
        for phase in data["phases"]
    )
    return Plan(**{**data, "phases": phases})
