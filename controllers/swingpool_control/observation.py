"""What the router sees of its cluster: the picker writes it, the manager's loops read it.

Of a router that tells nothing the manager makes the same from what the workers say of themselves.

Counts are totals since the picker started; rates and percentiles are over the last `window_s`. A figure that the picker
does not have is `Unknown`. Unix times are the picker's clock.
"""

from dataclasses import dataclass
from typing import Final

from swingpool_control.figures import Figure, Unknown
from swingpool_control.sizing.traffic import Lengths

PERCENTILES: Final = {"p50": 0.50, "p90": 0.90, "p95": 0.95, "p99": 0.99}
"""Those that objectives and figures speak of: the share of all values that lie at or under each."""

NOT_TOLD = Unknown("the router does not tell it")


@dataclass(frozen=True, slots=True, kw_only=True)
class Percentiles:
    """Percentiles of a latency in seconds over a window, and how many values they stand on."""

    p50: Figure
    p90: Figure
    p95: Figure
    p99: Figure
    count: int
    mean: Figure = NOT_TOLD


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerObservation:
    """One worker as the picker sees it."""

    pod: str
    address: str
    """`ip:port` of its HTTP API."""
    role: str
    """The role label's value; empty if it has none."""
    role_since_unix_s: float
    """When the picker first saw the worker in this role."""
    in_rotation: bool
    """Whether it gets requests of its role (ready, answering, not draining, not being deleted)."""
    why_not: str
    """Why it is out of rotation; empty if it is in."""
    pending_prefill_tokens: int
    """Prompt tokens sent to it for prefill and not computed yet."""
    prefills_in_flight: int
    """Prefill legs it holds now."""
    decodes_in_flight: int
    """Requests whose tokens it generates now, as far as this picker sent them."""
    prefills_served: int
    decodes_served: int
    first_served_in_role_unix_s: Figure
    """When it served the first request of its present role: a finished prefill leg, or a first generated token."""
    running: Figure
    """`vllm:num_requests_running`, by the last scrape."""
    waiting: Figure
    """`vllm:num_requests_waiting`, by the last scrape."""
    kv_usage: Figure
    """`vllm:kv_cache_usage_perc`, 0-1, by the last scrape."""
    scraped_unix_s: Figure
    """When the last good scrape ended."""
    slowness: Figure = NOT_TOLD
    """What its prompts take, over what its profile says, as the router has learnt it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RouterObservation:
    """What one picker, or all pickers of a cluster merged, see."""

    picker: str
    at_unix_s: float
    window_s: float
    requests_per_s: Figure
    prompt_tokens_per_s: Figure
    mean_isl_tokens: Figure
    mean_osl_tokens: Figure
    ttft_s: Percentiles
    itl_s: Percentiles
    queued_requests: int
    """Requests that wait in the picker: no worker of a role is in rotation, or none is nearly free."""
    workers: tuple[WorkerObservation, ...]
    queued_prompt_tokens: int = 0
    """Prompt tokens of those; no worker has them among its pending ones yet."""
    oldest_wait_s: Figure = NOT_TOLD
    """How long the oldest of those has waited; 0 if none waits."""
    arrival_scv: Figure = NOT_TOLD
    """Squared coefficient of variation of the times between arrivals; 1 is Poisson."""
    lengths: Lengths | Unknown = NOT_TOLD
    """Prompts and answers of the window's requests, each pair or, where pairs are not known, each distribution."""
    cached_prompt_tokens_per_s: Figure = NOT_TOLD
    """Prompt tokens that prefill workers found in their prefix caches and need not compute."""
    arrived_requests: Figure = NOT_TOLD
    """Requests since the picker started; of several pickers the sum, which compares only while they are the same."""
    arrived_prompt_tokens: Figure = NOT_TOLD
    """Prompt tokens of those, as far as their lengths are known."""
    deflected_prompt_tokens: Figure = NOT_TOLD
    """Of those, the ones that decode workers were given to compute."""
