"""Loads that are drawn from a description: rates over time, arrivals, mixes of lengths, shared prefixes."""

import heapq
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic.alias_generators import to_camel

from swingpool.traffic.lines import TrafficError
from swingpool_control.simulation.traffic import Arrival

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Tokens = Annotated[int, Field(ge=1, le=10_000_000)]

BLOCK_TOKENS = 16
"""A shared prefix is a multiple of this, which divides engines' blocks."""

TURN_BLOCK = 128
"""Tokens under one hash of a conversation's turn."""


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=to_camel, populate_by_name=True)


class Lengths(_Part):
    """A distribution of lengths: log-normal around `mean`, or uniform between `from` and `to`."""

    mean: Positive | None = None
    sigma: NotNegative = 0.0
    """Of the logarithm; 0 makes all alike."""
    from_: Annotated[Tokens | None, Field(alias="from")] = None
    to: Tokens | None = None
    max: Tokens | None = None
    """Longer ones are cut to this."""

    @model_validator(mode="after")
    def _one_kind(self) -> "Lengths":
        uniform = self.from_ is not None and self.to is not None
        if uniform == (self.mean is not None) or (self.from_ is None) != (self.to is None):
            raise ValueError("give either mean (and sigma), or from and to")
        if self.from_ is not None and self.to is not None and self.from_ > self.to:
            raise ValueError("from is above to")
        return self

    def draw(self, random: Random) -> int:
        """Return one length."""
        if self.mean is not None:
            factor = random.lognormvariate(-self.sigma * self.sigma / 2, self.sigma) if self.sigma else 1.0
            value = max(1, round(self.mean * factor))
        else:
            value = random.randint(self.from_ or 1, self.to or 1)
        return value if self.max is None else min(value, self.max)


class SharedPrefix(_Part):
    """Prompts begin with one of so many texts."""

    groups: Annotated[int, Field(ge=1, le=1_000_000)]
    tokens: Annotated[Tokens, Field(multiple_of=BLOCK_TOKENS, le=BLOCK_TOKENS * 4096)]


class Conversation(_Part):
    """A request begins a conversation: each later turn's prompt holds all that was said before."""

    turns: Annotated[int, Field(ge=2, le=1000)] | Lengths
    seconds_between: Positive = 30.0
    """Mean time from one turn's arrival to the next, exponential."""
    max_context: Tokens = 128_000
    """A turn whose prompt would be longer ends it."""


class Kind(_Part):
    """One kind of request in a mix."""

    weight: Positive = 1.0
    prompt_tokens: Tokens | Lengths
    """Without the shared prefix."""
    output_tokens: Tokens | Lengths
    shared_prefix: SharedPrefix | None = None
    conversation: Conversation | None = None
    class_: Annotated[str, Field(alias="class")] = ""
    """Name of the requests' class, as the spec lists classes."""
    tenant: str = ""


class Gamma(_Part):
    """Arrivals whose gaps follow a Gamma distribution."""

    gamma: Annotated[float, Field(gt=0, le=100)]
    """Coefficient of variation of the gaps: 1 is Poisson, more is burstier."""


class Ramp(_Part):
    """A rate that changes linearly over the phase."""

    from_: Annotated[NotNegative, Field(alias="from")]
    to: NotNegative


class Phase(_Part):
    """A stretch of load with one character."""

    seconds: Positive
    requests_per_second: NotNegative | Ramp
    arrivals: Literal["poisson", "uniform"] | Gamma = "poisson"
    mix: Annotated[tuple[Kind, ...], Field(min_length=1)]


class Load(_Part):
    """A whole load."""

    phases: Annotated[tuple[Phase, ...], Field(min_length=1)]
    repeat: Annotated[int, Field(ge=1, le=1_000_000)] = 1


@dataclass(frozen=True, slots=True)
class Seeds:
    """Seeds of what is drawn; each has its own, so that one may change alone."""

    arrivals: int
    lengths: int


def load(path: Path) -> Load:
    """Return the load in a YAML or JSON file.

    Raises:
        TrafficError: it cannot be read, or a field is missing, unknown or out of range.
    """
    try:
        content: Any = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise TrafficError(path, error.strerror or str(error)) from error
    except (yaml.MarkedYAMLError, UnicodeDecodeError) as error:
        mark = getattr(error, "problem_mark", None)
        what = f"not YAML: {getattr(error, 'problem', None) or error}"
        raise TrafficError(path, what, line=mark and mark.line + 1, column=mark and mark.column + 1) from error
    try:
        return Load.model_validate(content)
    except ValidationError as error:
        faults = "; ".join(f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in error.errors())
        raise TrafficError(path, faults) from error


def draw(described: Load, seeds: Seeds) -> Iterator[Arrival]:
    """Yield the requests of a load, in the order of their arrival.

    Args:
        described: the load.
        seeds: what it is drawn from; equal seeds, equal requests.
    """
    arrivals = Random(f"arrivals {seeds.arrivals}")  # noqa: S311 - reproducible, and no secret
    lengths = Random(f"lengths {seeds.lengths}")  # noqa: S311
    later = Turns()
    start_s = 0.0
    for _ in range(described.repeat):
        for number, phase in enumerate(described.phases):
            weights = [kind.weight for kind in phase.mix]
            for after_s in _times(phase, arrivals):
                yield from later.until(start_s + after_s)
                (index,) = lengths.choices(range(len(weights)), weights)
                kind, family = phase.mix[index], number * 1000 + index
                if kind.conversation is None:
                    yield _request(start_s + after_s, kind, lengths, family=family)
                else:
                    yield later.begun(start_s + after_s, kind, kind.conversation, lengths, family=family)
            start_s += phase.seconds
    yield from later.until(math.inf)


def _times(phase: Phase, random: Random) -> Iterator[float]:
    """Times within a phase: gaps of mean one, stretched to the rate that holds when they fall."""
    rate = phase.requests_per_second
    begin, end = (rate.from_, rate.to) if isinstance(rate, Ramp) else (rate, rate)
    slope = (end - begin) / phase.seconds
    asked = (begin + end) / 2 * phase.seconds
    total = _gap(phase, random)
    while total < asked:
        # Where the rate, integrated from the phase's begin, reaches `total`.
        root = math.sqrt(max(0.0, begin * begin + 2 * slope * total))
        yield 2 * total / (begin + root)
        total += _gap(phase, random)


def _gap(phase: Phase, random: Random) -> float:
    kind = phase.arrivals
    if kind == "uniform":
        return 1.0
    if kind == "poisson":
        return random.expovariate(1.0)
    shape = 1 / kind.gamma**2
    return random.gammavariate(shape, 1 / shape)


def _request(at_s: float, kind: Kind, random: Random, *, family: int) -> Arrival:
    prompt, output = length(kind.prompt_tokens, random), length(kind.output_tokens, random)
    shared = kind.shared_prefix
    if shared is None:
        return Arrival(at_s, prompt, output, kind=kind.class_, tenant=kind.tenant)
    text = family * 1_000_000 + random.randrange(shared.groups)
    return Arrival(at_s, shared.tokens + prompt, output, (text,), shared.tokens, kind.class_, kind.tenant)


def length(given: int | Lengths, random: Random) -> int:
    """Return one length."""
    return given if isinstance(given, int) else given.draw(random)


class Turns:
    """Conversations under way: their later turns, in the order of their arrival.

    A prompt's blocks of `TURN_BLOCK` tokens have hashes of their own; the first ones are the shared text's, if the kind
    has such, the others the conversation's.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Arrival]] = []
        self._made = 0

    def until(self, time_s: float) -> Iterator[Arrival]:
        """Yield the turns that arrive up to a time."""
        while self._heap and self._heap[0][0] <= time_s:
            yield heapq.heappop(self._heap)[2]

    def begun(self, at_s: float, kind: Kind, said: Conversation, random: Random, *, family: int) -> Arrival:
        """Return a conversation's first turn, and keep the others."""
        shared = kind.shared_prefix
        own = (self._made + 1) << 24
        common: tuple[int, ...] = ()
        context = 0
        if shared is not None:
            text = (family * 1_000_000 + random.randrange(shared.groups)) << 24
            common = tuple(-(text + block) - 1 for block in range(shared.tokens // TURN_BLOCK))
            context = shared.tokens
        first = None
        for _ in range(length(said.turns, random)):
            prompt = context + length(kind.prompt_tokens, random)
            if prompt > said.max_context and first is not None:
                break
            output = length(kind.output_tokens, random)
            blocks = (*common, *(own + block for block in range(len(common), prompt // TURN_BLOCK)))
            turn = Arrival(at_s, prompt, output, blocks, TURN_BLOCK, kind.class_, kind.tenant)
            self._made += 1
            if first is None:
                first = turn
            else:
                heapq.heappush(self._heap, (at_s, self._made, turn))
            context = prompt + output
            at_s += random.expovariate(1 / said.seconds_between)
        return first or Arrival(at_s, 1, 1, kind=kind.class_, tenant=kind.tenant)
