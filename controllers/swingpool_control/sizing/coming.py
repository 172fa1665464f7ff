"""What will be needed by the time that a worker which is asked for now can serve: the forecast, as sizing uses it.

Requests, prompt tokens and generated tokens are foretold apart, since their mix may turn while any of them stays. Where
all of them recur, so do lengths: tokens over requests. Elsewhere lengths are taken as they are. An unknown demand
leaves the past as it was; whoever comes late or not at all changes nothing.
"""

import math
from dataclasses import dataclass, field, replace

from swingpool_control import names
from swingpool_control.figures import Unknown
from swingpool_control.sizing import forecast, need
from swingpool_control.sizing.demand import Demand
from swingpool_control.sizing.forecast import Forecast, ForecastMemory
from swingpool_control.sizing.need import Need
from swingpool_control.sizing.pools import PoolFacts
from swingpool_control.sizing.rates import MOST_WORKERS
from swingpool_control.sizing.traffic import Lengths, Traffic

LEAST_HORIZON_S = 60.0
"""How far is looked at least, however fast workers start: sizing itself looks seldom."""
LOOK_S = 20.0
"""Until sizing looks again, and what was asked for is made: what is needed before that must be asked for now."""
_SMALL_PER_S = 1e-3
"""Below this rate factors mean nothing."""
_GRID, _MOST_STRETCH = 1.1, 8.0
"""Steps of factors between lengths, and their bound."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComingMemory:
    """What came, in requests, in prompt tokens and in generated tokens: plain numbers."""

    requests: ForecastMemory = field(default_factory=ForecastMemory)
    prompt_tokens: ForecastMemory = field(default_factory=ForecastMemory)
    output_tokens: ForecastMemory = field(default_factory=ForecastMemory)


@dataclass(frozen=True, slots=True, kw_only=True)
class Coming:
    """What will come until new workers serve."""

    requests: Forecast
    """Per second."""
    prompt_tokens: Forecast
    traffic: Traffic
    """What it is made of."""
    need: Need
    """Of the upper bounds, in requests of that traffic; never less than of what arrives now."""


def follow(memory: ComingMemory, seen: Demand | Unknown) -> ComingMemory:
    """Return the memory after one more look at the demand.

    Args:
        memory: as it was.
        seen: the demand; it carries its own time.
    """
    if isinstance(seen, Unknown):
        return memory
    return ComingMemory(
        requests=forecast.follow(memory.requests, seen.requests_per_s, now_unix_s=seen.at_unix_s),
        prompt_tokens=forecast.follow(memory.prompt_tokens, seen.prompt_tokens_per_s, now_unix_s=seen.at_unix_s),
        output_tokens=forecast.follow(memory.output_tokens, seen.generated_tokens_per_s, now_unix_s=seen.at_unix_s),
    )


def foresee(
    memory: ComingMemory, seen: Demand | Unknown, traffic: Traffic, *, now_unix_s: float, startup_s: float
) -> Coming | Unknown:
    """Return what will come until a worker that is asked for now serves, or why that is unknown.

    Args:
        memory: after `follow`.
        seen: the demand now.
        traffic: its lengths.
        now_unix_s: the time.
        startup_s: what the slowest worker takes to start.
    """
    if isinstance(seen, Unknown):
        return seen
    horizon_s = max(LEAST_HORIZON_S, startup_s) + LOOK_S
    requests = forecast.ahead(memory.requests, now_unix_s=now_unix_s, horizon_s=horizon_s)
    if isinstance(requests, Unknown):
        return requests
    prompts = forecast.ahead(memory.prompt_tokens, now_unix_s=now_unix_s, horizon_s=horizon_s)
    if isinstance(prompts, Unknown):
        return prompts
    outputs = forecast.ahead(memory.output_tokens, now_unix_s=now_unix_s, horizon_s=horizon_s)
    lengths = _lengths(memory, traffic.lengths, now_unix_s=now_unix_s, horizon_s=horizon_s)
    then = traffic if lengths is None else replace(traffic, lengths=lengths)
    present = need.arriving(seen, then)
    answers = requests.upper
    if lengths is not None and not isinstance(outputs, Unknown):
        answers = outputs.upper / max(1.0, lengths.mean_output_tokens)
    return Coming(
        requests=requests,
        prompt_tokens=prompts,
        traffic=then,
        need=Need(
            prefill_per_s=max(prompts.upper / max(1.0, then.lengths.mean_prompt_tokens), present.prefill_per_s),
            decode_per_s=max(answers, present.decode_per_s),
            kv_tokens=present.kv_tokens * max(1.0, requests.upper / max(_SMALL_PER_S, seen.requests_per_s)),
        ),
    )


def soon(memory: ComingMemory, traffic: Traffic, *, now_unix_s: float) -> Need | None:
    """Return what recurs within the next moments, in requests of the present lengths; None if nothing does.

    Args:
        memory: after `follow`.
        traffic: the present lengths.
        now_unix_s: the time.
    """
    prompts, outputs = (
        forecast.recurring(one, now_unix_s=now_unix_s, horizon_s=LOOK_S)
        for one in (memory.prompt_tokens, memory.output_tokens)
    )
    if not prompts or not outputs:
        return None
    return Need(
        prefill_per_s=max(prompts.values()) / max(1.0, traffic.lengths.mean_prompt_tokens),
        decode_per_s=max(outputs.values()) / max(1.0, traffic.lengths.mean_output_tokens),
        kv_tokens=0.0,
    )


def _lengths(memory: ComingMemory, now: Lengths, *, now_unix_s: float, horizon_s: float) -> Lengths | None:
    """Return the lengths when most tokens will come, on a grid that holds them still; None if they do not recur."""
    requests, prompts, outputs = (
        forecast.recurring(one, now_unix_s=now_unix_s, horizon_s=horizon_s)
        for one in (memory.requests, memory.prompt_tokens, memory.output_tokens)
    )
    if not requests or prompts.keys() != requests.keys() or outputs.keys() != requests.keys():
        return None
    prompt = _mean(prompts, requests) / max(1.0, now.mean_prompt_tokens)
    output = _mean(outputs, requests) / max(1.0, now.mean_output_tokens)
    return _stretched(now, prompt=_on_grid(prompt), output=_on_grid(output))


def _mean(tokens: dict[int, float], requests: dict[int, float]) -> float:
    """Return tokens per request in the step in which most tokens come."""
    most = max(tokens, key=lambda index: tokens[index])
    return tokens[most] / max(_SMALL_PER_S, requests[most])


def _on_grid(factor: float) -> float:
    bounded = min(_MOST_STRETCH, max(1 / _MOST_STRETCH, factor))
    return float(_GRID ** round(math.log(bounded) / math.log(_GRID)))


def _stretched(lengths: Lengths, *, prompt: float, output: float) -> Lengths:
    bins = (
        replace(one, prompt_tokens=one.prompt_tokens * prompt, output_tokens=one.output_tokens * output)
        for one in lengths.bins
    )
    return Lengths(bins=tuple(bins))


def translated(wanted: Need, then: tuple[PoolFacts, ...], now: tuple[PoolFacts, ...]) -> Need:
    """Return a need in requests of the present kind for which as many workers are enough.

    Args:
        wanted: in requests of another kind.
        then: what workers sustain of those.
        now: what they sustain of the present kind.
    """
    found = {role: rate * _worth(rate, role, then, now) for role, rate in wanted.by_role().items()}
    return replace(wanted, prefill_per_s=found[names.ROLE_PREFILL], decode_per_s=found[names.ROLE_DECODE])


def _worth(rate: float, role: str, then: tuple[PoolFacts, ...], now: tuple[PoolFacts, ...]) -> float:
    """Requests of the present kind that a worker sustains for each of the other kind, where so many come."""
    for other, present in zip(then, now, strict=True):
        if role in other.rates and role in present.rates and other.rates[role].best > 0:
            rates = other.rates[role]
            workers = 1
            while workers * rates.at(workers) < rate and workers < MOST_WORKERS:
                workers += 1
            if rates.at(workers) > 0:
                return present.rates[role].at(workers) / rates.at(workers)
    return 1.0
