"""The protocol that routers, clients and monitoring rely on. Everything here holds for real vLLM too.

Run it against one: `SWINGPOOL_WORKER_URL=http://... SWINGPOOL_WORKER_URL_2=http://... pytest <this file>`.
"""

import asyncio
import json
import uuid

import pytest

from e2e.vllm.asking import PREFILL_LEG
from tests.support.completions import Client
from tests.support.waiting import until_async

COMPLETIONS = "/v1/completions"
CHAT = "/v1/chat/completions"


def prompt(words: int = 12) -> str:
    """Return a prompt that no cache has seen."""
    start = uuid.uuid4().int
    return " ".join(f"w{(start >> index) % 500}" for index in range(words))


async def test_it_is_healthy_and_says_what_it_is(worker: Client) -> None:
    assert (await worker.get("/health")).status == 200
    assert isinstance((await (await worker.get("/version")).json())["version"], str)
    models = await (await worker.get("/v1/models")).json()
    assert models["object"] == "list"
    card = models["data"][0]
    assert (card["object"], card["owned_by"]) == ("model", "vllm")
    assert card["max_model_len"] > 0


async def test_a_completion(worker: Client) -> None:
    body = await worker.completion(prompt=prompt(), max_tokens=5, ignore_eos=True)
    assert body["object"] == "text_completion"
    assert body["id"].startswith("cmpl-")
    assert body["model"] == worker.model
    (choice,) = body["choices"]
    assert (choice["index"], choice["finish_reason"]) == (0, "length")
    assert choice["text"]
    usage = body["usage"]
    assert usage["completion_tokens"] == 5
    assert usage["total_tokens"] == usage["prompt_tokens"] + 5


async def test_a_chat_completion(worker: Client) -> None:
    body = await worker.chat(prompt(), max_completion_tokens=4, ignore_eos=True)
    assert body["object"] == "chat.completion"
    assert body["id"].startswith("chatcmpl-")
    (choice,) = body["choices"]
    assert choice["message"]["role"] == "assistant"
    assert choice["message"]["content"]
    assert choice["finish_reason"] == "length"
    assert body["usage"]["completion_tokens"] == 4


async def test_a_streamed_completion(worker: Client) -> None:
    answer = await worker.stream(COMPLETIONS, prompt=prompt(), max_tokens=6, ignore_eos=True)
    assert answer.status == 200
    assert answer.content_type.startswith("text/event-stream")
    assert answer.done
    assert len({chunk["id"] for chunk in answer.chunks}) == 1
    assert {chunk["object"] for chunk in answer.chunks} == {"text_completion"}
    reasons = [chunk["choices"][0]["finish_reason"] for chunk in answer.chunks]
    assert reasons == [None] * (len(reasons) - 1) + ["length"]
    assert all("usage" not in chunk or chunk["usage"] is None for chunk in answer.chunks)


async def test_a_streamed_chat_completion(worker: Client) -> None:
    answer = await worker.stream(CHAT, content=prompt(), max_tokens=6, ignore_eos=True)
    assert answer.done
    assert {chunk["object"] for chunk in answer.chunks} == {"chat.completion.chunk"}
    first = answer.chunks[0]["choices"][0]
    assert first["delta"]["role"] == "assistant"
    assert first["finish_reason"] is None
    assert answer.chunks[-1]["choices"][0]["finish_reason"] == "length"
    assert answer.text


@pytest.mark.parametrize("path", [COMPLETIONS, CHAT])
async def test_usage_closes_a_stream_that_asks_for_it(worker: Client, path: str) -> None:
    asked = {"prompt": prompt()} if path == COMPLETIONS else {"content": prompt()}
    answer = await worker.stream(path, max_tokens=3, ignore_eos=True, stream_options={"include_usage": True}, **asked)
    last = answer.chunks[-1]
    assert last["choices"] == []
    assert last["usage"]["completion_tokens"] == 3
    assert answer.chunks[-2]["choices"][0]["finish_reason"] == "length"


async def test_continuous_usage_counts_along(worker: Client) -> None:
    options = {"include_usage": True, "continuous_usage_stats": True}
    answer = await worker.stream(COMPLETIONS, prompt=prompt(), max_tokens=3, ignore_eos=True, stream_options=options)
    counts = [chunk["usage"]["completion_tokens"] for chunk in answer.chunks]
    assert counts[-1] == 3
    assert counts == sorted(counts)


async def test_streamed_and_whole_answers_are_equal(worker: Client) -> None:
    asked = {"prompt": prompt(), "max_tokens": 12, "ignore_eos": True}
    whole = await worker.completion(**asked)
    assert (await worker.stream(COMPLETIONS, **asked)).text == whole["choices"][0]["text"]


async def test_min_tokens_holds(worker: Client) -> None:
    body = await worker.completion(prompt=prompt(), min_tokens=9, max_tokens=9)
    assert body["usage"]["completion_tokens"] == 9


async def test_token_ids_are_counted_exactly(worker: Client) -> None:
    body = await worker.completion(prompt=[5, 6, 7, 8, 9], max_tokens=2, ignore_eos=True)
    assert body["usage"]["prompt_tokens"] == 5


async def test_several_prompts_and_answers(worker: Client) -> None:
    body = await worker.completion(prompt=[prompt(), prompt()], n=2, max_tokens=3, ignore_eos=True, temperature=0.7)
    assert [choice["index"] for choice in body["choices"]] == [0, 1, 2, 3]
    assert body["usage"]["completion_tokens"] == 12


async def test_several_answers_in_one_stream(worker: Client) -> None:
    answer = await worker.stream(CHAT, content=prompt(), n=2, max_tokens=3, ignore_eos=True, temperature=0.7)
    ended = [c["index"] for chunk in answer.chunks for c in chunk["choices"] if c["finish_reason"]]
    assert sorted(ended) == [0, 1]
    assert answer.done


async def test_an_unknown_model_is_not_found(worker: Client) -> None:
    for path in (COMPLETIONS, CHAT):
        status, body = await worker.post(path, model="no-such-model", prompt="x", messages=[])
        assert status == 404, body
        assert body["error"]["type"] == "NotFoundError"
        assert body["error"]["code"] == 404
        assert "no-such-model" in body["error"]["message"]


async def test_broken_json_is_refused(worker: Client) -> None:
    status, body = await worker.raw(COMPLETIONS, b'{"model":')
    assert status == 400
    assert body["error"]["code"] == 400


async def test_a_context_too_long_is_refused(worker: Client) -> None:
    models = await (await worker.get("/v1/models")).json()
    longest = models["data"][0]["max_model_len"]
    status, body = await worker.post(COMPLETIONS, prompt=[5] * (longest + 1), max_tokens=1)
    assert status == 400
    assert str(longest) in body["error"]["message"]
    assert "maximum context length" in body["error"]["message"]


@pytest.mark.parametrize(
    "fields",
    [
        {"prompt": "x", "max_tokens": -1},
        {"prompt": "x", "max_tokens": 0},
        {"prompt": "", "max_tokens": 1},
        {"prompt": "x", "max_tokens": "many"},
        {"max_tokens": 1},
        {"prompt": "x", "stream_options": {"include_usage": True}},
    ],
    ids=["negative", "zero", "empty prompt", "text", "no prompt", "stream options without a stream"],
)
async def test_broken_fields_are_refused(worker: Client, fields: dict[str, object]) -> None:
    status, body = await worker.post(COMPLETIONS, **fields)
    assert status == 400, body
    assert set(body["error"]) >= {"message", "type", "param", "code"}


async def test_what_is_not_there(worker: Client) -> None:
    for path, status in (("/v1/nothing", 404), (COMPLETIONS, 405)):
        response = await worker.get(path)
        assert response.status == status
        assert set(await response.json()) == {"detail"}


async def test_what_is_not_said_to_be_json_is_refused(worker: Client) -> None:
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    body = json.dumps({"model": worker.model, "prompt": "w1", "max_tokens": 1}).encode()
    async with worker.session.post(worker.url + COMPLETIONS, data=body, headers=form) as response:
        assert response.status == 400


async def test_a_limit_beyond_the_context_is_lowered_to_it(worker: Client) -> None:
    models = await (await worker.get("/v1/models")).json()
    longest = models["data"][0]["max_model_len"]
    body = await worker.completion(prompt=[5] * (longest - 3), max_tokens=longest, ignore_eos=True)
    assert body["usage"]["completion_tokens"] == 3


async def test_the_fields_of_chunks(worker: Client) -> None:
    """Clients that parse strictly meet the same fields in the same places."""
    answer = await worker.stream(COMPLETIONS, prompt=prompt(), max_tokens=2, ignore_eos=True)
    fields = {"index", "text", "logprobs", "finish_reason", "stop_reason", "prompt_token_ids", "token_ids"}
    assert all(set(chunk["choices"][0]) == fields for chunk in answer.chunks)
    assert all({"id", "object", "created", "model", "choices"} <= set(chunk) for chunk in answer.chunks)
    answer = await worker.stream(CHAT, content=prompt(), max_tokens=2, ignore_eos=True)
    first, middle, last = (set(chunk["choices"][0]) for chunk in answer.chunks)
    assert first == {"index", "delta", "logprobs", "finish_reason"}
    assert middle == {"index", "delta", "logprobs", "finish_reason", "token_ids"}
    assert last == {*middle, "stop_reason"}


async def test_metrics_have_vllms_names_labels_and_buckets(worker: Client) -> None:
    await worker.completion(prompt=prompt(), max_tokens=3, ignore_eos=True)
    samples = await worker.metrics()
    labels = {'engine="0"', f'model_name="{worker.model}"'}
    for name in (
        *("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc", "prompt_tokens_total"),
        *("generation_tokens_total", "prefix_cache_queries_total", "prefix_cache_hits_total", "num_preemptions_total"),
        *("time_to_first_token_seconds_bucket", "inter_token_latency_seconds_bucket"),
        *("e2e_request_latency_seconds_sum", "request_queue_time_seconds_sum", "request_prefill_time_seconds_sum"),
        *("request_decode_time_seconds_count", "request_inference_time_seconds_count", "request_success_total"),
        *("request_prompt_tokens_sum", "request_generation_tokens_sum", "request_params_max_tokens_sum"),
        *("request_time_per_output_token_seconds_count", "prompt_tokens_by_source_total"),
        *("num_requests_waiting_by_reason", "external_prefix_cache_hits_total", "prompt_tokens_cached_total"),
        *("nixl_num_failed_transfers_total", "nixl_num_kv_expired_reqs_total", "nixl_xfer_time_seconds_sum"),
    ):
        of_name = [sample for sample in samples if sample.startswith(f"vllm:{name}{{")]
        assert of_name, name
        assert all(labels <= set(sample.split("{")[1].rstrip("}").split(",")) for sample in of_name), of_name
    for bound in ("0.01", "0.025", "0.05"):
        assert any("inter_token_latency_seconds_bucket" in s and f'le="{bound}"' in s for s in samples)
    for bound in ("0.001", "0.04", "2560.0"):
        assert any("time_to_first_token_seconds_bucket" in s and f'le="{bound}"' in s for s in samples)
    (info,) = [sample for sample in samples if sample.startswith("vllm:cache_config_info")]
    assert 'block_size="' in info
    assert 'num_gpu_blocks="' in info


async def test_metrics_count_requests_and_tokens(worker: Client) -> None:
    names = ("vllm:generation_tokens_total", "vllm:request_success_total", "vllm:time_to_first_token_seconds_count")
    before = [await worker.metric(name) for name in names]
    for _ in range(2):
        await worker.completion(prompt=prompt(), max_tokens=7, ignore_eos=True)

    async def counted() -> bool:
        return [await worker.metric(name) - was for name, was in zip(names, before, strict=True)] == [14, 2, 2]

    await until_async("two requests of seven tokens are counted", counted)


async def test_a_client_that_goes_away_ends_its_request(worker: Client) -> None:
    body = {"model": worker.model, "prompt": prompt(), "max_tokens": 500, "ignore_eos": True, "stream": True}
    async with worker.session.post(worker.url + COMPLETIONS, json=body) as response:
        await response.content.readline()
        assert await worker.metric("vllm:num_requests_running") == 1
        response.close()

    async def ended() -> bool:
        return await worker.metric("vllm:num_requests_running") == 0

    await until_async("the request has ended", ended)
    assert await worker.metric("vllm:kv_cache_usage_perc") == 0


@pytest.mark.parametrize("path", [COMPLETIONS, CHAT])
async def test_prefill_here_and_decode_there_gives_the_same_answer(worker: Client, other: Client, path: str) -> None:
    text = prompt(40)
    asked = {"prompt": text} if path == COMPLETIONS else {"messages": [{"role": "user", "content": text}]}
    for prefill, decode in ((worker, other), (other, worker)):
        status, first = await prefill.post(path, **asked, max_tokens=1, kv_transfer_params=PREFILL_LEG)
        assert status == 200, first
        params = first["kv_transfer_params"]
        assert params["do_remote_prefill"] is True
        assert params["do_remote_decode"] is False
        assert params["remote_block_ids"]
        assert {"remote_engine_id", "remote_request_id", "remote_host", "remote_port", "tp_size"} <= set(params)
        assert {"remote_num_tokens", "dcp_size", "pp_size", "transfer_mode"} <= set(params)
        source = {"source": "external_kv_transfer"}
        before = await decode.metric("vllm:prompt_tokens_by_source_total", **source)
        status, split = await decode.post(path, **asked, max_tokens=8, ignore_eos=True, kv_transfer_params=params)
        assert status == 200, split
        assert await decode.metric("vllm:prompt_tokens_by_source_total", **source) > before
        status, whole = await prefill.post(path, **asked, max_tokens=8, ignore_eos=True)
        assert split["choices"] == whole["choices"]
        text = prompt(40)  # the next one is cached nowhere
        asked = {"prompt": text} if path == COMPLETIONS else {"messages": [{"role": "user", "content": text}]}


async def test_a_streamed_decode_leg(worker: Client, other: Client) -> None:
    text = prompt(40)
    first = await worker.completion(prompt=text, max_tokens=1, kv_transfer_params=PREFILL_LEG)
    params = json.loads(json.dumps(first["kv_transfer_params"]))
    split = await other.stream(COMPLETIONS, prompt=text, max_tokens=8, ignore_eos=True, kv_transfer_params=params)
    whole = await worker.completion(prompt=text, max_tokens=8, ignore_eos=True)
    assert split.text == whole["choices"][0]["text"]
    assert split.text.startswith(first["choices"][0]["text"])


async def test_blocks_that_nobody_fetches_are_freed_when_their_lease_ends(worker: Client, other: Client) -> None:
    """Who comes too late computes the prompt itself, and answers as if nothing had happened."""
    text = prompt(40)
    expired = await worker.metric("vllm:nixl_num_kv_expired_reqs_total")
    first = await worker.completion(prompt=text, max_tokens=1, kv_transfer_params=PREFILL_LEG)
    assert await worker.metric("vllm:kv_cache_usage_perc") > 0

    async def freed() -> bool:
        return (
            await worker.metric("vllm:nixl_num_kv_expired_reqs_total") > expired
            and await worker.metric("vllm:kv_cache_usage_perc") == 0
        )

    await until_async("the lease has ended", freed)
    late = await other.completion(
        prompt=text, max_tokens=8, ignore_eos=True, kv_transfer_params=first["kv_transfer_params"]
    )
    whole = await worker.completion(prompt=text, max_tokens=8, ignore_eos=True)
    assert late["choices"] == whole["choices"]


# Sleep


async def test_asleep_it_is_healthy_and_serves_what_came_once_it_is_awake(worker: Client) -> None:
    words = prompt(70)
    await worker.completion(prompt=words, max_tokens=1, ignore_eos=True)
    assert await worker.raw("/sleep?level=1", b"") == (200, {"status": "sleeping", "level": 1})
    assert await asleep(worker)
    assert (await worker.get("/health")).status == 200
    task = asyncio.create_task(worker.completion(prompt=words, max_tokens=2, ignore_eos=True))
    hits = await worker.metric("vllm:prefix_cache_hits_total")
    done, _ = await asyncio.wait([task], timeout=0.5)
    assert not done, "an engine that sleeps computes nothing"
    status, body = await worker.raw("/wake_up", b"")
    assert (status, body["status"]) == (200, "awake")
    assert not await asleep(worker)
    assert (await task)["usage"]["completion_tokens"] == 2
    assert await worker.metric("vllm:prefix_cache_hits_total") == hits, "the KV cache went with its memory"


async def test_what_runs_when_an_engine_is_put_to_sleep_comes_to_its_end_first(worker: Client) -> None:
    task = asyncio.create_task(worker.completion(prompt=prompt(), max_tokens=60, ignore_eos=True))
    await until_async("it runs", lambda: runs(worker))
    assert (await worker.raw("/sleep?level=1&mode=wait", b""))[0] == 200
    assert await asleep(worker)
    assert (await task)["choices"][0]["finish_reason"] == "length"
    assert (await worker.raw("/wake_up", b""))[0] == 200


async def test_a_sleeping_worker_can_be_told_so_twice(worker: Client) -> None:
    for path, word in (("/sleep?level=1", "sleeping"), ("/wake_up", "awake")):
        for _ in range(2):
            status, body = await worker.raw(path, b"")
            assert (status, body["status"]) == (200, word)


async def asleep(worker: Client) -> bool:
    """Return what a worker says of its sleep."""
    body: dict[str, bool] = await (await worker.get("/is_sleeping")).json()
    return body["is_sleeping"]


async def runs(worker: Client) -> bool:
    """Return whether a worker runs a request."""
    return await worker.metric("vllm:num_requests_running") == 1
