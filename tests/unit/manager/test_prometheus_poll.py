"""The load from Prometheus: the same figures as from the workers' own pages, and unknown where it has none.

A server answers as Prometheus does (its HTTP API, version 1): samples of what it scraped, by selectors that it checks.
"""

import json
import re
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from swingpool.manager.external_traffic import Asked, ExternalTraffic
from swingpool.manager.prometheus_poll import LOOK_BACK, NO_SERVER, PrometheusPoll
from swingpool.manager.store import Key
from swingpool.telemetry.prometheus import Address, Prometheus, PrometheusError, selector
from swingpool.telemetry.vllm_page import parse
from swingpool_control import names
from swingpool_control.api.router import PrometheusSeries
from swingpool_control.figures import Unknown
from swingpool_control.observation import RouterObservation

KEY = Key("serving", "chat")
OF = PrometheusSeries.model_validate({"labels": [{"name": "cluster", "value": "west"}]})
BOUNDS = ("10.0", "100.0", "1000.0", "+Inf")
T0 = 1_800_000_000.0


def page(prompts: int, *, running: int = 1) -> str:
    """What a worker shows that has computed so many prompts of fifty tokens."""
    lines = [f'vllm:num_requests_running{{model_name="m"}} {running}', 'vllm:num_requests_waiting{model_name="m"} 0']
    for name, total in (("request_prompt_tokens", 50.0), ("time_to_first_token_seconds", 0.05)):
        lines += [
            f'vllm:{name}_bucket{{le="{bound}",model_name="m"}} {prompts if bound != "10.0" or total < 1 else 0}'
            for bound in BOUNDS
        ]
        lines.append(f'vllm:{name}_sum{{model_name="m"}} {total * prompts}')
    return "\n".join(lines)


class Server:
    """Answers queries by what was scraped."""

    def __init__(self) -> None:
        self.scrapes: dict[str, list[tuple[float, str]]] = {}
        self.labels = {"namespace": "serving", "cluster": "west"}
        self.status = 200
        self.body: str | None = None
        self.tokens: list[str] = []
        self.url = ""

    def scrape(self, at_s: float, **pages: str) -> None:
        for pod, text in pages.items():
            self.scrapes.setdefault(pod, []).append((T0 + at_s, text))

    async def answer(self, request: web.Request) -> web.Response:
        self.tokens.append(request.headers.get("Authorization", ""))
        if self.status != 200 or self.body is not None:
            return web.Response(status=self.status, text=self.body or "no")
        form = await request.post()
        expression, now = str(form["query"]), float(str(form["time"]))
        inside = expression.removesuffix(f"[{LOOK_BACK}]")
        asked = {name: (how, json.loads(value)) for name, how, value in re.findall(r'(\w+)(=~?)("[^"]*")', inside)}
        found = [
            one for one in self._series(now) if all(_fits(one["metric"], name, *how) for name, how in asked.items())
        ]
        if inside == expression:
            found = [{"metric": one["metric"], "value": [now, one["values"][-1][1]]} for one in found]
        kind = "vector" if inside == expression else "matrix"
        return web.json_response({"status": "success", "data": {"resultType": kind, "result": found}})

    def _series(self, now: float) -> list[dict[str, Any]]:
        values: dict[tuple[tuple[str, str], ...], list[list[Any]]] = {}
        for pod, scrapes in self.scrapes.items():
            for at, text in scrapes:
                for line in text.splitlines() if now - 180 < at <= now else ():
                    sample = re.fullmatch(r"([\w:]+)\{(.*)\} (\S+)", line)
                    assert sample is not None, line
                    name, labels, number = sample.groups()
                    pairs = dict(re.findall(r'(\w+)="([^"]*)"', labels)) | self.labels | {"pod": pod, "__name__": name}
                    values.setdefault(tuple(sorted(pairs.items())), []).append([at, number])
        return [{"metric": dict(labels), "values": found} for labels, found in values.items()]


def _fits(metric: dict[str, str], name: str, how: str, value: str) -> bool:
    has = metric.get(name, "")
    return has == value if how == "=" else re.fullmatch(value, has) is not None


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    one = Server()
    app = web.Application()
    app.router.add_post("/api/v1/query", one.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    one.url = f"http://{host}:{port}"
    yield one
    await runner.cleanup()


def pod(name: str, role: str) -> dict[str, Any]:
    labels = {names.LABEL_COMPONENT: names.COMPONENT_WORKER, names.LABEL_ROLE: role}
    return {
        "metadata": {"name": name, "uid": f"uid-{name}", "labels": labels},
        "status": {"podIP": "10.0.0.1", "conditions": [{"type": "Ready", "status": "True"}]},
    }


PODS = [pod("chat-p", "prefill"), pod("chat-d", "decode")]


class Poll:
    """A poll under a clock of ours."""

    def __init__(self, server: Server | None, token_file: Path | None = None) -> None:
        self.now = T0
        address = None if server is None else Address(url=server.url, token_file=token_file)
        self.poll = PrometheusPoll(
            None if address is None else Prometheus(address), monotonic=lambda: self.now, now_unix_s=lambda: self.now
        )

    async def at(self, after_s: float, of: PrometheusSeries = OF) -> RouterObservation:
        self.now = T0 + after_s
        return await self.poll.observe(KEY, PODS, of)


Polls = Callable[..., Poll]


@pytest.fixture
async def polls() -> AsyncIterator[Polls]:
    made: list[Poll] = []

    def make(server: Server | None, token_file: Path | None = None) -> Poll:
        made.append(Poll(server, token_file))
        return made[-1]

    yield make
    for one in made:
        await one.poll.close()


async def test_it_is_what_the_workers_pages_say(server: Server, polls: Polls) -> None:
    poll, direct = polls(server), ExternalTraffic(window_s=20.0)
    for number in range(8):
        at_s = 5.0 * number
        pages = {"chat-p": page(20 * number), "chat-d": page(20 * number)}
        server.scrape(at_s, **pages)
        seen = await poll.at(at_s + 0.5)
        direct.saw(
            [
                Asked(pod=name, uid=name, address="", role=role, why_not="", figures=parse(text, now_unix_s=T0 + at_s))
                for (name, text), role in zip(pages.items(), ("prefill", "decode"), strict=True)
            ],
            now_unix_s=T0 + at_s + 0.5,
        )
    wanted = direct.observation(now_unix_s=poll.now)
    assert seen.requests_per_s == pytest.approx(wanted.requests_per_s) == pytest.approx(4.0)
    assert seen.mean_isl_tokens == wanted.mean_isl_tokens == 50.0
    assert seen.ttft_s == wanted.ttft_s
    assert [one.in_rotation for one in seen.workers] == [True, True]
    assert seen.picker == "prometheus"
    assert seen.at_unix_s == T0 + 35.0  # the scrape's time, so that it counts once
    assert (await poll.at(38.0)).at_unix_s == T0 + 35.0


async def test_series_of_others_are_not_ours(server: Server, polls: Polls) -> None:
    poll = polls(server)
    for number in range(3):
        server.scrape(5.0 * number, **{"chat-p": page(number), "chat-d": page(number), "other": page(900 * number)})
        seen = await poll.at(5.0 * number + 0.5)
    assert {one.pod for one in seen.workers} == {"chat-p", "chat-d"}
    for changed in ({"cluster": "east"}, {"namespace": "elsewhere"}):
        server.labels |= changed
        lost = await polls(server).at(11.0)
        assert isinstance(lost.requests_per_s, Unknown)
        assert "no series vllm:num_requests_running with the labels cluster=west, namespace=serving" in (
            lost.requests_per_s.why
        )
        server.labels = {"namespace": "serving", "cluster": "west"}


async def test_what_is_not_scraped_any_more_is_unknown_not_zero(server: Server, polls: Polls) -> None:
    poll = polls(server)
    for number in range(6):
        both = {"chat-p": page(20 * number), "chat-d": page(20 * number)}
        server.scrape(5.0 * number, **both)
        await poll.at(5.0 * number + 0.5)
    for number in range(6, 10):
        server.scrape(5.0 * number, **{"chat-d": page(120)})
        seen = await poll.at(5.0 * number + 0.5)
    assert isinstance(seen.requests_per_s, Unknown)
    assert seen.requests_per_s.why == "chat-p: Prometheus has no recent scrape of it"
    assert isinstance(seen.arrived_requests, Unknown)


async def test_no_answer_is_unknown_and_says_why(server: Server, polls: Polls, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("first\n")
    poll = polls(server, token)
    server.scrape(0.0, **{"chat-p": page(0), "chat-d": page(0)})
    await poll.at(0.5)
    token.write_text("second\n")
    cases = [
        (401, None, "refuses us with status 401: see the manager's --prometheus-token-file"),
        (502, "<html>", "answers with status 502 and no result of a query"),
        (400, '{"status": "error", "error": "parse error"}', "refuses the question: parse error"),
        (200, '{"status": "success", "data": {"result": [{}]}}', "answers with status 200 and no result of a query"),
    ]
    for number, (server.status, server.body, why) in enumerate(cases, start=1):
        seen = await poll.at(5.0 * number)
        assert isinstance(seen.requests_per_s, Unknown)
        assert isinstance(seen.arrived_prompt_tokens, Unknown)
        assert why in seen.requests_per_s.why
    assert {"Bearer first", "Bearer second"} == set(server.tokens)


async def test_a_server_that_is_not_there_and_none_at_all(polls: Polls) -> None:
    gone = Server()
    gone.url = "http://127.0.0.1:1"
    seen = await polls(gone).at(0.0)
    assert isinstance(seen.requests_per_s, Unknown)
    assert "Prometheus at http://127.0.0.1:1 does not answer" in seen.requests_per_s.why
    none = await polls(None).at(0.0)
    assert none.requests_per_s == Unknown(NO_SERVER)


async def test_a_token_that_cannot_be_read_is_told(server: Server, tmp_path: Path) -> None:
    client = Prometheus(Address(url=server.url, token_file=tmp_path / "missing"))
    with pytest.raises(PrometheusError, match=r"does not answer: .*missing"):
        await client.query("up", at_unix_s=T0)
    await client.close()


def test_selectors_match_names_as_they_are() -> None:
    made = selector({"namespace": 'a"b'}, {"pod": ["chat-p.1", "x"]})
    assert made == '{namespace="a\\"b",pod=~"chat-p\\\\.1|x"}'
