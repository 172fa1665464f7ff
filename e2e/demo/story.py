"""What the demo sends, and what it must show."""

from e2e.load.plan import Lengths, Phase, Plan

NAMESPACE = "demo"
CLUSTER = "chat"
MODEL = "demo/chat"
"""Namespace, InferenceCluster and model of `sample.yaml`."""

PHASE_S = 48.0

PROMPT_HEAVY = {
    "requests_per_s": 12.0,
    "prompt_tokens": Lengths(mean=450, sigma=0.3),
    "output_tokens": Lengths(mean=8),
}
"""Long prompts, short answers: about twice what one prefill worker computes, and nearly nothing to decode."""

GENERATION_HEAVY = {
    "requests_per_s": 12.0,
    "prompt_tokens": Lengths(mean=40, sigma=0.3),
    "output_tokens": Lengths(mean=60, sigma=0.3),
}
"""Short prompts, long answers: about one and a half times what one decode worker generates."""


def phases(phase_s: float = PHASE_S) -> tuple[Phase, ...]:
    """Return the load: it turns from prompts to generation and back, twice."""
    kinds = {"prompts": PROMPT_HEAVY, "generation": GENERATION_HEAVY}
    names = ("prompts", "generation", "prompts again", "generation again")
    return tuple(Phase(name=name, seconds=phase_s, **kinds[name.split()[0]]) for name in names)  # type: ignore[arg-type]


def plan(url: str, *, seed: int = 1) -> Plan:
    """Return the whole run against a router."""
    return Plan(url=url, model=MODEL, phases=phases(), seed=seed)
