"""The published simulator's rules, on machines whose times can be reckoned in the head."""

import pytest

from benchmarks.splitwise_rules.cluster import PROMPT, TOKEN, PublishedCluster
from benchmarks.splitwise_rules.objectives import slowdowns
from benchmarks.splitwise_rules.scheduling import MixedPool, Scheduler, ShortestQueue
from benchmarks.splitwise_rules.times import (
    BYTES_PER_S,
    KV_BYTES_PER_TOKEN,
    KV_TOKENS,
    MIXED,
    Line,
    PublishedModel,
    Times,
    read,
)
from swingpool_control.simulation.outcome import Outcome
from swingpool_control.simulation.traffic import Arrival

PROMPT_S, STEP_S = 1e-3, 0.01
"""Seconds per prompt token; seconds of a step, however many sequences it has."""
TIMES = Times(
    prompt=Line((100.0, 1000.0), (100 * PROMPT_S, 1000 * PROMPT_S)),
    token=Line((100.0, 1000.0), (STEP_S, STEP_S)),
    batch=Line((1.0, 2.0), (STEP_S, 2 * STEP_S)),
)


def transfer_s(tokens: int) -> float:
    return tokens * KV_BYTES_PER_TOKEN / BYTES_PER_S


def run(
    arrivals: list[Arrival],
    *,
    prompt: int = 1,
    token: int = 1,
    kind: type[Scheduler] = MixedPool,
    corrected: bool = False,
) -> tuple[list[Outcome], Scheduler]:
    """Outcomes by arrival."""
    scheduler = kind([one.output_tokens for one in arrivals])
    model = PublishedModel("plain", TIMES, corrected=corrected)
    cluster = PublishedCluster({PROMPT: prompt, TOKEN: token}, {PROMPT: model, TOKEN: model}, arrivals, scheduler)
    cluster.run()
    return sorted(cluster.outcomes, key=lambda one: one.number), scheduler


def test_a_lone_request_takes_its_prompt_its_transfer_and_all_tokens_but_the_first() -> None:
    (outcome,), scheduler = run([Arrival(1.0, 500, 11)])
    assert scheduler.first_s[0] == pytest.approx(1.0 + 0.5)
    assert outcome.end_s == pytest.approx(1.0 + 0.5 + transfer_s(500) + 10 * STEP_S)
    found = slowdowns([outcome], scheduler.first_s, TIMES)
    assert found.values["ttft_p99"] == pytest.approx(1.0)
    # Over all tokens instead of the gaps between them, as it is published.
    assert found.values["tbt_p50"] == pytest.approx((transfer_s(500) + 10 * STEP_S) / 11 / STEP_S)
    assert found.holds


def test_prompts_share_an_iteration_up_to_the_budget_and_none_is_split() -> None:
    sizes = (100, 1500, 600, 1400, 3000)
    _, scheduler = run([Arrival(0.001 * number, size, 2) for number, size in enumerate(sizes)])
    ends = [scheduler.first_s[number] for number in range(len(sizes))]
    # 600 does not fit beside 1500, but 1400 does beside 600; 3000 exceeds the budget alone.
    assert ends == pytest.approx([0.1, 1.6, 3.6, 3.6, 6.6])


def test_answers_give_way_to_a_prompt_and_go_on_after_it() -> None:
    # Nine answers of 101 tokens under way; a prompt that leaves room for eight of them beside it.
    arrivals = [Arrival(0.0, 100, 101)] + [Arrival(0.01, 100, 101)] * 8 + [Arrival(1.5, 2040, 2)]
    outcomes, _ = run(arrivals, prompt=1, token=0, kind=ShortestQueue)
    first_s = outcomes[9].first_s
    assert first_s is not None
    mixed_s = MIXED * 2048 * PROMPT_S
    steps = round((first_s - mixed_s - 1.5) / STEP_S + 1)
    assert first_s - mixed_s == pytest.approx(1.5, abs=STEP_S)
    assert steps <= 1
    ends = sorted(one.end_s for one in outcomes[:9])
    # Eight got a token in the mixed iteration, the ninth did not and is one step behind them.
    assert ends[8] - ends[7] == pytest.approx(STEP_S)


def test_whoever_was_passed_over_four_times_comes_before_prompts() -> None:
    prompts = [Arrival(0.2 + 0.001 * number, 3000, 2) for number in range(8)]
    outcomes, _ = run([Arrival(0.0, 100, 3), *prompts], prompt=1, token=0, kind=ShortestQueue)
    # Its two tokens wait for four long prompts each, not for all eight.
    before = sum(one.first_s is not None and one.first_s < outcomes[0].end_s for one in outcomes[1:])
    assert before < 8


def test_a_token_machine_takes_prompts_while_their_queues_are_long() -> None:
    arrivals = [Arrival(0.001 * number, 4000, 2) for number in range(4)]
    _, scheduler = run(arrivals, prompt=1, token=2)
    # Two wait at the prompt machine (8,000 tokens); the third would make it 12,000.
    assert scheduler.first_s.get(2, 4.002) == pytest.approx(4.002, abs=0.01)
    late = [*arrivals, Arrival(60.0, 500, 2)]
    outcomes, again = run(late, prompt=1, token=2)
    assert again.first_s[4] == pytest.approx(60.5)
    assert all(one.result == "completed" for one in outcomes)


def test_a_prompt_machine_generates_while_all_token_machines_are_full() -> None:
    first, second = KV_TOKENS * 2 // 3, KV_TOKENS // 3
    outcomes, scheduler = run([Arrival(0.0, first, 1000), Arrival(0.5, second, 1000)])
    assert [one.result for one in outcomes] == ["completed", "completed"]
    assert scheduler.first_s == {0: pytest.approx(first * PROMPT_S)}
    # Nothing is moved for the second, whose prompt is computed where its tokens are generated.
    assert outcomes[1].end_s - outcomes[1].arrival.at_s >= second * PROMPT_S + 999 * STEP_S


def test_decode_is_looked_up_by_what_was_swept_once_it_is_corrected() -> None:
    compat, corrected = (PublishedModel("plain", TIMES, corrected=flag) for flag in (False, True))
    assert compat.decode_steps_s(steps=10, sequences=64, context_tokens=0) == pytest.approx(10 * STEP_S)
    assert corrected.decode_steps_s(steps=10, sequences=64, context_tokens=0) == pytest.approx(640 * STEP_S)


def test_the_table_is_read_as_medians_by_prompt_tokens_of_the_batch() -> None:
    head = "model,hardware,prompt_size,batch_size,token_size,peak_power,average_power,prompt_time,token_time,e2e_time,"
    rows = ["512,1,128,0,0,100,40", "512,1,128,0,0,300,60", "512,1,128,0,0,200,50", "512,2,128,0,0,400,70"]
    rows += ["1024,1,128,0,0,600,52"]
    text = "\n".join([head + "tensor_parallel", *(f"bloom-176b,a100-80gb,{row},0,8" for row in rows)])
    times = read(text.encode())["a100-80gb"]
    assert times.prompt.at(512) == pytest.approx(0.2)
    assert times.prompt.at(1024) == pytest.approx(0.5)
    assert times.token.at(1024) == pytest.approx(0.061)
    assert times.batch.at(2) == pytest.approx(0.07)
    assert times.batch.at(3) == pytest.approx(0.09)
