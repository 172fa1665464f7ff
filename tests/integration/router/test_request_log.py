"""The request log of a picker behind a real Envoy: what clients asked for can be simulated."""

import json
from typing import Any

import aiohttp

from swingpool.traffic.read import read
from swingpool.traffic.synthetic import Seeds
from swingpool_control import names
from tests.support.router_client import ask, completion
from tests.support.router_stand import Stand
from tests.support.waiting import until_async


async def test_each_request_has_a_line_that_a_simulation_reads(stand: Stand, session: aiohttp.ClientSession) -> None:
    begun = len(lines(stand))
    asked = {10: 20, 30: 40, 50: 160}
    for prompt, output in asked.items():
        body = completion(list(range(7, 7 + prompt)), stream=True, max_tokens=output, ignore_eos=True)
        headers = {names.HEADER_CLASS: f"class-{prompt}", names.HEADER_TENANT: "someone"}
        assert (await ask(session, stand.url, body, headers=headers)).status == 200

    async def told() -> bool:
        return len(lines(stand)) >= begun + len(asked)

    await until_async("every request has its line", told)
    found = {row["class"]: row for row in lines(stand)[begun:]}
    for prompt in asked:
        row = found[f"class-{prompt}"]
        assert (row["prompt_tokens"], row["status"], row["stream"], row["tenant"]) == (prompt, 200, True, "someone")
        assert 0 < row["ttft_s"] <= row["duration_s"]
        assert row["worker"] in {worker.address for worker in stand.workers.values()}
    # Lengths are estimated from bytes: nearly in proportion before it is learnt how many a token has.
    tokens = [found[f"class-{prompt}"]["output_tokens"] for prompt in asked]
    assert 1.5 * tokens[0] < tokens[1] < 3 * tokens[0]
    assert 3 * tokens[1] < tokens[2] < 6 * tokens[1]
    arrivals = list(read(stand.request_log, seeds=Seeds(arrivals=1, lengths=1)))
    assert [one.prompt_tokens for one in arrivals if one.kind.startswith("class-")] == list(asked)


async def test_a_request_that_is_refused_has_one_too(stand: Stand, session: aiohttp.ClientSession) -> None:
    begun = len(lines(stand))
    answer = await ask(session, stand.url, completion("x" * 40, model="no-such-model"))
    assert answer.status == 404

    async def told() -> bool:
        return len(lines(stand)) > begun

    await until_async("the request has its line", told)
    assert lines(stand)[begun]["status"] == 404


def lines(stand: Stand) -> list[dict[str, Any]]:
    """Return what is written so far."""
    if not stand.request_log.exists():
        return []
    return [json.loads(line) for line in stand.request_log.read_text().splitlines()]
