"""What will be needed by the time that a worker which is asked for now can serve: the forecast, as sizing uses it.

Requests and prompt tokens are foretold apart, since their mix may turn while either stays. Lengths are taken as they
are. An unknown demand leaves the past as it was; whoever comes late or not at all changes nothing.
"""

from dataclasses import dataclass, field

from swingpool_control.figures import Unknown
from swingpool_control.sizing import forecast, need
from swingpool_control.sizing.demand import Demand
from swingpool_control.sizing.forecast import Forecast, ForecastMemory
from swingpool_control.sizing.need import Need
from swingpool_control.sizing.traffic import Traffic

LEAST_HORIZON_S = 60.0
"""How far is looked at least, however fast workers start: sizing itself looks seldom."""
_SMALL_PER_S = 1e-3
"""Below this rate factors mean nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComingMemory:
    """What came, in requests and in prompt tokens: plain numbers."""

    requests: ForecastMemory = field(default_factory=ForecastMemory)
    prompt_tokens: ForecastMemory = field(default_factory=ForecastMemory)


@dataclass(frozen=True, slots=True, kw_only=True)
class Coming:
    """What will come until new workers serve."""

    requests: Forecast
    """Per second."""
    prompt_tokens: Forecast
    need: Need
    """Of the upper bounds; never less than of what arrives now."""


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
    horizon_s = max(LEAST_HORIZON_S, startup_s)
    requests = forecast.ahead(memory.requests, now_unix_s=now_unix_s, horizon_s=horizon_s)
    if isinstance(requests, Unknown):
        return requests
    prompts = forecast.ahead(memory.prompt_tokens, now_unix_s=now_unix_s, horizon_s=horizon_s)
    if isinstance(prompts, Unknown):
        return prompts
    present = need.arriving(seen, traffic)
    lengths = traffic.lengths
    return Coming(
        requests=requests,
        prompt_tokens=prompts,
        need=Need(
            prefill_per_s=max(prompts.upper / max(1.0, lengths.mean_prompt_tokens), present.prefill_per_s),
            decode_per_s=max(requests.upper, present.decode_per_s),
            kv_tokens=present.kv_tokens * max(1.0, requests.upper / max(_SMALL_PER_S, seen.requests_per_s)),
        ),
    )
