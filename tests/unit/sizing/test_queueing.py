"""The queueing model: closed forms where there are some, and what must hold of every queue."""

import math
from itertools import pairwise

import pytest

from swingpool_control.engine.linear import LinearModel, StepCost
from swingpool_control.engine.profile import built_in
from swingpool_control.sizing import queueing, sustained
from swingpool_control.sizing.decode_batch import Request, generate
from swingpool_control.sizing.draws import draws
from swingpool_control.sizing.prefill_queue import Order, computed, prompt
from swingpool_control.sizing.queueing import Group, predict, prefill_rate
from swingpool_control.sizing.traffic import LengthBin, Lengths, Traffic, lengths_of, one_length

FIFO = Order(age_s=0.0)
H200 = built_in("llama-3.1-8b-fp8-h200").model()
MIXED = lengths_of([(200, 50), (400, 300), (1000, 100), (1500, 20), (4000, 250)])


def _model(*, budget: int = 1, step_s: float = 1e-3) -> LinearModel:
    """Return a worker that takes `step_s` per prompt token, and as long for a decode step however large the batch."""
    return LinearModel(
        name="simple",
        step=StepCost(
            base_s=step_s,
            prefill_base_s=0.0,
            prefill_token_s=0.0 if budget == 1 else step_s,
            prefill_context_token2_s=0.0,
            sequence_s=0.0,
            context_token_s=0.0,
        ),
        kv_capacity_tokens=10_000_000,
        kv_bytes_per_token=1.0,
        max_batched_tokens=budget,
        max_sequences=4096,
        link_bytes_per_s=1e12,
        link_latency_s=0.0,
        startup_s=0.0,
    )


def _mean_wait_s(lengths: Lengths, *, load: float, servers: int, count: int = 60_000, scv: float = 1.0) -> float:
    model = _model()
    prompts = [prompt(model, tokens=one.prompt_tokens, cached_share=0.0) for one in lengths.bins]
    sample = draws(lengths, scv=scv, count=count)
    work_s = [prompts[one].work_s for one in sample.bins]
    gap_s = sum(work_s) / count / servers / load
    arrivals_s = [at * gap_s for at in sample.arrivals]
    done_s = computed([model] * servers, arrivals_s, sample.bins, prompts, FIFO).at_s
    waits = [done - at - work for done, at, work in zip(done_s, arrivals_s, work_s, strict=True)]
    assert min(waits) > -1e-6
    return sum(waits) / count


def _exponential(mean: float) -> Lengths:
    edges = 60
    return Lengths(
        bins=tuple(
            LengthBin(prompt_tokens=-mean * math.log(1 - (number + 0.5) / edges), output_tokens=1, weight=1.0)
            for number in range(edges)
        )
    )


@pytest.mark.parametrize("load", [0.5, 0.8])
def test_m_d_1(load: float) -> None:
    wait_s = _mean_wait_s(one_length(prompt_tokens=100, output_tokens=1), load=load, servers=1)
    assert wait_s == pytest.approx(0.1 * load / (2 * (1 - load)), rel=0.05)


def test_m_m_1() -> None:
    wait_s = _mean_wait_s(_exponential(200), load=0.7, servers=1)
    assert wait_s == pytest.approx(0.2 * 0.7 / 0.3, rel=0.08)


def test_m_m_4() -> None:
    chance = 0.5964  # Erlang's C for four servers at 0.8
    wait_s = _mean_wait_s(_exponential(200), load=0.8, servers=4)
    assert wait_s == pytest.approx(chance * 0.2 / (4 * 0.2), rel=0.1)


def test_even_arrivals_of_equal_prompts_never_wait() -> None:
    lengths = one_length(prompt_tokens=100, output_tokens=1)
    assert _mean_wait_s(lengths, load=0.6, servers=2, count=5000, scv=0.01) < 1e-3


def test_prompts_that_wait_share_iterations() -> None:
    model = _model(budget=1000)
    one = prompt(model, tokens=100, cached_share=0.0)
    done_s = computed([model], [0.0] * 20, [0] * 20, [one], FIFO).at_s
    assert len(set(done_s)) <= 4


def test_a_cached_prefix_is_not_computed() -> None:
    whole, half = (prompt(H200, tokens=4000, cached_share=share) for share in (0.0, 0.5))
    assert half.tokens == 2000
    assert half.work_s < whole.work_s


def test_steps_give_each_sequence_its_tokens() -> None:
    model = _model(step_s=0.01)
    requests = [
        Request(at_s=0.5 * number, prompt_tokens=10, output_tokens=200, transfer_s=0.0, before=0.5)
        for number in range(400)
    ]
    found = generate(model, 2, requests, since=100)
    assert sum(found.tokens) == pytest.approx(300 * 200, rel=0.02)
    assert set(found.step_s) == {0.01}
    # About four sequences run at a time: the transfer waits for half a step, and is over at the end of the next.
    assert found.first_s[200] - 100.0 == pytest.approx(0.025)


def test_one_worker_sends_what_it_computed_one_after_the_other() -> None:
    requests = [
        Request(at_s=1.0, prompt_tokens=10, output_tokens=1, transfer_s=0.3, before=0.0, sender=number // 2)
        for number in range(4)
    ]
    found = generate(_model(step_s=0.01), 4, requests, since=0)
    assert found.first_s == pytest.approx([1.31, 1.61, 1.31, 1.61])


def test_no_more_sequences_than_fit_run_together() -> None:
    model = _changed(_model(step_s=0.01), max_sequences=2)
    requests = [Request(at_s=0.0, prompt_tokens=10, output_tokens=100, transfer_s=0.0, before=0.0) for _ in range(6)]
    found = generate(model, 1, requests, since=0)
    assert sorted(round(first_s) for first_s in found.first_s) == [0, 0, 1, 1, 2, 2]


def _changed(model: LinearModel, **changes: float) -> LinearModel:
    return LinearModel(**{field: getattr(model, field) for field in LinearModel.__dataclass_fields__} | changes)


def test_contexts_that_outgrow_the_kv_cache_are_computed_anew() -> None:
    model = _changed(_model(budget=1000, step_s=0.01), kv_capacity_tokens=400)
    requests = [
        Request(at_s=0.0, prompt_tokens=100, output_tokens=200, transfer_s=0.0, before=0.0, sender=number)
        for number in range(3)
    ]
    found = generate(model, 1, requests, since=0)
    # Three begin together; when each has a third of the cache the last one makes room, and is back when one has ended.
    assert sorted(round(first_s, 1) for first_s in found.first_s) == [0.0, 0.0, 0.0]
    assert sum(found.tokens) == pytest.approx(600, abs=3)
    again_s = 130 * 0.01
    assert max(found.step_s) == pytest.approx(1.7 + again_s, abs=0.1)
    roomy = generate(_changed(model, kv_capacity_tokens=1000), 1, requests, since=0)
    assert set(roomy.step_s) == {0.01}


def test_a_full_kv_cache_sustains_less_than_its_mean_batch_would() -> None:
    tight = _changed(H200, kv_capacity_tokens=20_000)
    traffic = Traffic(requests_per_s=1.0, lengths=MIXED)
    sustained_rate, mean_rate = (
        rate(tight, traffic) for rate in (queueing.sustained_decode_rate, queueing.decode_rate)
    )
    assert 0.5 * mean_rate < sustained_rate < mean_rate
    roomy = _changed(H200, max_sequences=16)
    assert queueing.sustained_decode_rate(roomy, traffic) == queueing.decode_rate(roomy, traffic)


@pytest.fixture
def _small_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queueing, "SAMPLE", 2500)
    queueing._predict.cache_clear()


@pytest.mark.usefixtures("_small_sample")
def test_more_load_never_looks_better_and_more_workers_never_worse() -> None:
    one = Group(model=H200, workers=1)
    traffic = Traffic(requests_per_s=1.0, lengths=MIXED, arrival_scv=2.0)
    most = prefill_rate(one, traffic)
    decode = (Group(model=H200, workers=2),)

    def found(load: float, workers: int) -> float:
        prefill = (Group(model=H200, workers=workers),)
        return predict(traffic.at_rate(load * most), prefill=prefill, decode=decode).ttft_s[0.95]

    by_load = [found(load, 1) for load in (0.0, 0.3, 0.6, 0.9, 1.1)]
    assert by_load == sorted(by_load)
    assert by_load[-1] == math.inf
    by_workers = [found(0.9, workers) for workers in (1, 2, 3)]
    assert by_workers == sorted(by_workers, reverse=True)


@pytest.mark.usefixtures("_small_sample")
def test_the_order_of_groups_does_not_matter() -> None:
    traffic = Traffic(requests_per_s=20.0, lengths=MIXED)
    groups = (Group(model=H200, workers=1), Group(model=H200, workers=2))
    one = predict(traffic, prefill=groups, decode=groups[:1])
    other = predict(traffic, prefill=groups[::-1], decode=groups[:1])
    assert one == other
    with pytest.raises(ValueError, match="each role"):
        predict(traffic, prefill=(), decode=groups)


def test_a_link_that_is_too_slow_bounds_decode() -> None:
    slow = _changed(H200, link_bytes_per_s=1e8)
    traffic = Traffic(requests_per_s=5.0, lengths=MIXED)
    group = (Group(model=slow, workers=1),)
    found = predict(traffic, prefill=(Group(model=H200, workers=4),), decode=group)
    assert found.decode_load > 1
    assert found.ttft_s[0.95] == math.inf


@pytest.mark.parametrize("scv", [0.25, 1.0, 9.0])
def test_what_is_sustained_grows_with_workers_and_by_more_than_its_share(scv: float) -> None:
    traffic = Traffic(requests_per_s=1.0, lengths=MIXED, arrival_scv=scv)
    prefill = sustained.prefill_rates(H200, traffic=traffic, level=0.95, ttft_s=0.6, handover_s=0.04, most=12)
    decode = sustained.decode_rates(H200, traffic=traffic, level=0.95, itl_s=0.02, most=12)
    for rates in (prefill, decode):
        assert list(rates) == sorted(rates)
        each = [rate / workers for workers, rate in enumerate(rates, 1)]
        assert all(later >= one * 0.999 for one, later in pairwise(each))
    tighter = sustained.prefill_rates(H200, traffic=traffic, level=0.95, ttft_s=0.4, handover_s=0.04, most=12)
    assert all(one <= other for one, other in zip(tighter, prefill, strict=True))


def test_burstier_traffic_needs_more_workers() -> None:
    calm, bursty = (Traffic(requests_per_s=1.0, lengths=MIXED, arrival_scv=scv) for scv in (1.0, 9.0))
    rates = [
        sustained.prefill_rates(H200, traffic=traffic, level=0.95, ttft_s=0.6, handover_s=0.04, most=4)
        for traffic in (calm, bursty)
    ]
    assert all(one > other for one, other in zip(*rates, strict=True))


@pytest.mark.usefixtures("_small_sample")
@pytest.mark.parametrize("workers", [1, 4])
def test_what_is_sustained_holds_the_objective_by_the_prediction(workers: int) -> None:
    traffic = Traffic(requests_per_s=1.0, lengths=MIXED)
    handover_s = sustained.handover_s(H200, itl_s=0.01)
    rates = sustained.prefill_rates(H200, traffic=traffic, level=0.95, ttft_s=0.6, handover_s=handover_s, most=4)
    rate = rates[workers - 1]
    found = predict(
        traffic.at_rate(rate),
        prefill=(Group(model=H200, workers=workers),),
        decode=(Group(model=H200, workers=4),),
    )
    assert found.ttft_s[0.95] < 1.1 * 0.6
    assert found.prefill_load > 0.5


def test_an_objective_that_nothing_meets_is_told() -> None:
    traffic = Traffic(requests_per_s=1.0, lengths=MIXED)
    assert sustained.decode_rates(H200, traffic=traffic, level=0.95, itl_s=1e-4, most=2) == (0.0, 0.0)
    rates = sustained.prefill_rates(H200, traffic=traffic, level=0.95, ttft_s=1e-3, handover_s=0.0, most=2)
    assert max(rates) < 1e-6
