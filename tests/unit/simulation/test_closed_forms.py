"""One worker against queueing theory, where that has closed forms."""

from random import Random

import pytest

from swingpool_control.engine.model import prefill_s
from swingpool_control.engine.profile import built_in
from swingpool_control.simulation.policies.catalogue import POLICIES
from swingpool_control.simulation.settings import Latencies, Settings
from swingpool_control.simulation.traffic import Arrival
from tests.support.simulations import simulate, spec

PROMPT = 512
ONE_AT_A_TIME = [
    {"name": "prefill", "role": "Prefill", "engine": {"maxBatchedTokens": PROMPT}, "replicas": {"min": 1, "max": 1}},
    {"name": "decode", "role": "Decode", "replicas": {"min": 1, "max": 1}},
]
"""The prefill worker's budget is one prompt: it serves one after the other, which makes it a queue with one server."""

SETTINGS = Settings(policy=POLICIES["static"], latencies=Latencies(hop_s=0.0))


@pytest.mark.parametrize("load", [0.3, 0.6, 0.8])
def test_fixed_prompts_wait_as_in_an_m_d_1_queue(load: float) -> None:
    model = built_in("demo").model(max_batched_tokens=PROMPT)
    service_s = prefill_s(model, prompt_tokens=PROMPT)
    random = Random(7)
    at_s, arrivals = 0.0, []
    for _ in range(round(5_000 / (1 - load))):
        at_s += random.expovariate(load / service_s)
        arrivals.append(Arrival(at_s, PROMPT, 1))
    _, outcomes = simulate(spec(ONE_AT_A_TIME), arrivals, SETTINGS)
    step_s = model.step_s(prefill_tokens=0, prefill_context_tokens=0, decode_sequences=1, decode_context_tokens=PROMPT)
    # Decoding one token takes far less than a prompt's prefill, so nothing queues behind the prefill worker.
    after_s = model.transfer_s(tokens=PROMPT) + step_s
    ttfts = [outcome.ttft_s for outcome in outcomes if outcome.ttft_s is not None]
    assert len(ttfts) == len(arrivals)
    seen_s = sum(ttfts) / len(ttfts) - after_s
    waiting_s = load * service_s / (2 * (1 - load))
    assert seen_s == pytest.approx(service_s + waiting_s, rel=0.03)
    assert seen_s - service_s == pytest.approx(waiting_s, rel=0.06)
