"""What a simulated worker does when things go wrong, and how it ends; real vLLM has no faults on request."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import aiohttp
import pytest

from e2e.vllm.asking import PREFILL_LEG
from tests.support.completions import Client
from tests.support.waiting import until_async
from tests.support.workers import MODEL, WorkerProcess

COMPLETIONS = "/v1/completions"
TEXT = "a prompt of some length that fills a few blocks, " * 8


@pytest.fixture(scope="module")
def prefill_process() -> Iterator[WorkerProcess]:
    with WorkerProcess(lease_s=1.5) as process:
        yield process


@pytest.fixture(scope="module")
def decode_process() -> Iterator[WorkerProcess]:
    with WorkerProcess(policy="recompute") as process:
        yield process


@pytest.fixture
async def prefill(session: aiohttp.ClientSession, prefill_process: WorkerProcess) -> AsyncIterator[Client]:
    """A worker whose leases are short, and which fails requests whose transfer fails."""
    yield Client(session, prefill_process.url, MODEL)
    await session.delete(f"{prefill_process.url}/faults")


@pytest.fixture
async def decode(session: aiohttp.ClientSession, decode_process: WorkerProcess) -> AsyncIterator[Client]:
    """A worker that computes prompts whose transfer fails."""
    yield Client(session, decode_process.url, MODEL)
    await session.delete(f"{decode_process.url}/faults")


async def keep(client: Client, text: str = TEXT) -> dict[str, Any]:
    """Prefill; return the parameters by which the KV cache can be pulled."""
    body = await client.completion(prompt=text, max_tokens=1, kv_transfer_params=PREFILL_LEG)
    return dict(body["kv_transfer_params"])


async def fault(client: Client, **fields: Any) -> None:
    status, body = await client.raw("/faults", json.dumps(fields).encode())
    assert status == 200, body


async def kv_is_free(client: Client) -> bool:
    return await client.metric("vllm:kv_cache_usage_perc") == 0


# KV cache that cannot be had


async def test_a_second_pull_finds_nothing(prefill: Client, decode: Client) -> None:
    params = await keep(prefill)
    await decode.completion(prompt=TEXT, max_tokens=2, ignore_eos=True, kv_transfer_params=params)
    assert await kv_is_free(prefill)
    status, body = await prefill.post(COMPLETIONS, prompt=TEXT[1:], max_tokens=2, kv_transfer_params=params)
    assert status == 500, "the policy is to fail"
    assert body["error"]["type"] == "InternalServerError"
    before = await decode.metric("vllm:nixl_num_failed_transfers_total")
    again = await decode.completion(prompt=TEXT[1:], max_tokens=2, ignore_eos=True, kv_transfer_params=params)
    assert again["usage"]["completion_tokens"] == 2, "the policy is to recompute"
    assert await decode.metric("vllm:nixl_num_failed_transfers_total") == before + 1


async def test_a_failed_stream_says_so_and_ends(prefill: Client) -> None:
    params = await keep(prefill) | {"remote_request_id": "gone"}
    answer = await prefill.stream(COMPLETIONS, prompt=TEXT, max_tokens=2, kv_transfer_params=params)
    assert answer.chunks == [
        {"error": {"message": "Internal server error", "type": "InternalServerError", "param": None, "code": 500}}
    ]
    assert answer.done


@pytest.mark.parametrize(
    "wrong",
    [
        {"remote_engine_id": "another"},
        {"remote_request_id": "another"},
        {"remote_block_ids": [[4000, 4001]]},
        {"remote_port": 1},
    ],
    ids=lambda wrong: next(iter(wrong)),
)
async def test_what_does_not_fit_is_not_pulled(prefill: Client, decode: Client, wrong: dict[str, Any]) -> None:
    params = await keep(prefill)
    before = await decode.metric("vllm:nixl_num_failed_transfers_total")
    body = await decode.completion(prompt=TEXT, max_tokens=2, ignore_eos=True, kv_transfer_params={**params, **wrong})
    assert body["usage"]["completion_tokens"] == 2
    assert await decode.metric("vllm:nixl_num_failed_transfers_total") == before + 1
    assert not await kv_is_free(prefill), "what was kept is kept"
    await decode.completion(prompt=TEXT + "!", max_tokens=1, kv_transfer_params=params)


async def test_a_lease_ends_and_frees_its_blocks(prefill: Client) -> None:
    await until_async("the KV cache is free again", lambda: kv_is_free(prefill))
    before = await prefill.metric("vllm:nixl_num_kv_expired_reqs_total")
    await keep(prefill)
    assert not await kv_is_free(prefill)
    await until_async("the KV cache is free again", lambda: kv_is_free(prefill))
    assert await prefill.metric("vllm:nixl_num_kv_expired_reqs_total") == before + 1


async def test_parameters_that_name_no_place_mean_a_local_prefill(decode: Client) -> None:
    params = {"do_remote_prefill": True, "remote_engine_id": None, "remote_block_ids": None}
    source = {"source": "external_kv_transfer"}
    before = await decode.metric("vllm:prompt_tokens_by_source_total", **source)
    await decode.completion(prompt=TEXT, max_tokens=2, kv_transfer_params=params)
    assert await decode.metric("vllm:prompt_tokens_by_source_total", **source) == before


async def test_a_refused_decode_leg_gives_up_what_is_kept_for_it(prefill: Client, decode: Client) -> None:
    expired = await prefill.metric("vllm:nixl_num_kv_expired_reqs_total")
    params = await keep(prefill)
    status, _ = await decode.post(COMPLETIONS, prompt=TEXT, max_tokens=0, kv_transfer_params=params)
    assert status == 400
    await until_async("the KV cache is free again", lambda: kv_is_free(prefill))
    assert await prefill.metric("vllm:nixl_num_kv_expired_reqs_total") == expired, "given up, not expired"


async def test_a_decode_leg_whose_client_went_away_gives_up_too(prefill: Client, decode: Client) -> None:
    expired = await prefill.metric("vllm:nixl_num_kv_expired_reqs_total")
    await fault(decode, kind="slow", factor=50)
    params = await keep(prefill)
    body = {"model": MODEL, "prompt": TEXT, "max_tokens": 5, "kv_transfer_params": params}
    with pytest.raises(asyncio.TimeoutError):
        await decode.session.post(decode.url + COMPLETIONS, json=body, timeout=aiohttp.ClientTimeout(total=0.2))
    await until_async("the KV cache is free again", lambda: kv_is_free(prefill))
    await until_async("the KV cache is free again", lambda: kv_is_free(decode))
    assert await prefill.metric("vllm:nixl_num_kv_expired_reqs_total") == expired


async def test_a_lease_is_renewed_while_the_decode_leg_waits(prefill: Client) -> None:
    """Two at a time fill the batch; the decode leg waits for longer than its lease would last."""
    with WorkerProcess("--max-num-seqs", "1", policy="fail", lease_s=1.5, speedup=1) as busy:
        client = Client(prefill.session, busy.url, MODEL)
        long = asyncio.create_task(client.completion(prompt="x", max_tokens=300, ignore_eos=True))
        await until_async("a request runs", lambda: _running(client))
        params = await keep(prefill)
        body = await client.completion(prompt=TEXT, max_tokens=1, kv_transfer_params=params)
        assert body["usage"]["completion_tokens"] == 1
        assert (await long)["usage"]["completion_tokens"] == 300
        assert await client.metric("vllm:nixl_num_failed_transfers_total") == 0


async def _running(client: Client) -> bool:
    return await client.metric("vllm:num_requests_running") >= 1


# Faults


async def test_errors_on_request(decode: Client) -> None:
    await fault(decode, kind="error", status=503)
    status, body = await decode.post(COMPLETIONS, prompt="x", max_tokens=1)
    assert (status, body["error"]["code"]) == (503, 503)
    assert (await decode.get("/health")).status == 200, "only requests fail"
    listed = await (await decode.get("/faults")).json()
    assert [each["kind"] for each in listed["faults"]] == ["error"]
    await decode.session.delete(f"{decode.url}/faults")
    await decode.completion(prompt="x", max_tokens=1)


async def test_failing_transfers_on_request(prefill: Client, decode: Client) -> None:
    await fault(decode, kind="transfer", duration_s=60)
    params = await keep(prefill)
    before = await decode.metric("vllm:nixl_num_failed_transfers_total")
    await decode.completion(prompt=TEXT, max_tokens=1, kv_transfer_params=params)
    assert await decode.metric("vllm:nixl_num_failed_transfers_total") == before + 1


async def test_a_broken_fault_is_told_by_field(decode: Client) -> None:
    status, body = await decode.raw("/faults", b'{"kind":"slow","factor":0}')
    assert status == 400
    assert "factor" in body["error"]["message"]


async def test_slowness_on_request(decode: Client) -> None:
    name = "vllm:request_decode_time_seconds_sum"
    spent = []
    for factor in (1, 8):
        if factor > 1:
            await fault(decode, kind="slow", factor=factor)
        before = await decode.metric(name)
        await decode.completion(prompt="x", max_tokens=20, ignore_eos=True)
        spent.append(await decode.metric(name) - before)
    assert spent[1] > 2 * spent[0]


async def test_a_hang_stops_everything_for_its_time(session: aiohttp.ClientSession) -> None:
    with WorkerProcess() as process:
        client = Client(session, process.url, MODEL)
        await fault(client, kind="hang", duration_s=2.5)
        await until_async("nobody answers", lambda: asyncio.to_thread(_silent, process))
        await until_async("the worker is healthy again", lambda: _healthy(client))
        await client.completion(prompt="x", max_tokens=2)


def _silent(process: WorkerProcess) -> bool:
    return process.health(timeout_s=0.5) is None


async def _healthy(client: Client) -> bool:
    return (await client.get("/health")).status == 200


async def test_a_crash_leaves_as_a_kill_does(session: aiohttp.ClientSession) -> None:
    with WorkerProcess() as process:
        await fault(Client(session, process.url, MODEL), kind="crash")
        assert await asyncio.to_thread(process.end) == 137


# Start and end


async def test_it_is_not_ready_while_the_model_loads(session: aiohttp.ClientSession) -> None:
    with WorkerProcess("--startup-delay", "2", wait=False) as process:
        await asyncio.to_thread(process.await_health, 503)
        client = Client(session, process.url, MODEL)
        status, _ = await client.post(COMPLETIONS, prompt="x", max_tokens=1)
        assert status == 503
        await asyncio.to_thread(process.await_health, 200)
        await client.completion(prompt="x", max_tokens=1)


async def test_a_drain_ends_what_is_there_and_takes_nothing_new(session: aiohttp.ClientSession) -> None:
    with WorkerProcess("--shutdown-timeout", "60") as process:
        client = Client(session, process.url, MODEL)
        stream = asyncio.create_task(client.stream(COMPLETIONS, prompt="x", max_tokens=300, ignore_eos=True))
        await until_async("a request runs", lambda: _running(client))
        process.terminate()
        await until_async("new requests are refused", lambda: _refuses(client))
        assert (await client.get("/health")).status == 200, "it is alive still"
        answer = await stream
        assert answer.done
        assert len(answer.chunks) == 300
        assert await asyncio.to_thread(process.end) == 0


async def _refuses(client: Client) -> bool:
    status, _ = await client.post(COMPLETIONS, prompt="y", max_tokens=1)
    return status == 500


async def test_a_drain_waits_for_what_is_kept_to_be_pulled(session: aiohttp.ClientSession, decode: Client) -> None:
    with WorkerProcess("--shutdown-timeout", "60", lease_s=50) as process:
        params = await keep(Client(session, process.url, MODEL))
        process.terminate()
        await asyncio.sleep(0.6)
        assert process.process is not None
        assert process.process.poll() is None, "a lease is held"
        failed = await decode.metric("vllm:nixl_num_failed_transfers_total")
        await decode.completion(prompt=TEXT + "?", max_tokens=1, kv_transfer_params=params)
        assert await decode.metric("vllm:nixl_num_failed_transfers_total") == failed
        assert await asyncio.to_thread(process.end) == 0


@pytest.mark.parametrize("allowed", ["1", "0"])
async def test_a_drain_ends_when_its_time_is_over(session: aiohttp.ClientSession, allowed: str) -> None:
    with WorkerProcess("--shutdown-timeout", allowed) as process:
        client = Client(session, process.url, MODEL)
        stream = asyncio.create_task(client.stream(COMPLETIONS, prompt="x", max_tokens=5000, ignore_eos=True))
        await until_async("a request runs", lambda: _running(client))
        process.terminate()
        assert await asyncio.to_thread(process.end) == 0
        answer = await stream
        assert answer.chunks[-1]["error"]["code"] == 500, "the client is told"


def test_a_port_that_is_taken_is_told() -> None:
    with WorkerProcess() as process, WorkerProcess("--port", str(process.port), wait=False) as second:
        assert second.end() == 1
        assert "cannot listen" in second.errors()
