"""The simulator against the simulated worker: a process that is driven over HTTP in real time.

Both iterate with the same engine and profile; what differs is the clock, the process and its HTTP server. Requests come
at random moments; the simulator gets the very same ones.
"""

import asyncio
import itertools
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from statistics import fmean

import aiohttp
import numpy as np

from benchmarks.checks.simulated import DECODE, PREFILL, WHOLE, settings, spec
from benchmarks.harness import Run
from e2e.ports import free_port
from swingpool_control.engine.profile import built_in
from swingpool_control.simulation.cluster import Simulation
from swingpool_control.simulation.outcome import Outcome
from swingpool_control.simulation.result import Result
from swingpool_control.simulation.settings import Latencies
from swingpool_control.simulation.traffic import Arrival

WITHIN = 0.10
PERCENTS = (50, 95)
PROFILE, MODEL = "demo", "simulated"
PER_S = 2.5
HOP_S = 0.001
"""From a client's clock to a loopback server and back, about."""
READY_S = 30.0
ANSWER_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a client saw of one request."""

    first_s: float
    gaps_s: tuple[float, ...]
    """Between its tokens."""


def check(run: Run) -> None:
    """Compare TTFT and times between tokens at p50 and p95."""
    lasts_s = 10.0 if run.quick else 120.0
    run.say(f"a simulated worker driven for {lasts_s:.0f} s, {PER_S:g} requests/s")
    port = free_port()
    # It must not close a connection just when the client takes it up again.
    environment = {**os.environ, "PYTHONPATH": "", "VLLM_HTTP_TIMEOUT_KEEP_ALIVE": "600"}
    process = subprocess.Popen(_command(port), env=environment, stderr=subprocess.DEVNULL)
    try:
        arrivals, answers = asyncio.run(_drive(port, lasts_s, run.seed))
    finally:
        process.terminate()
        process.wait(READY_S)
    result, outcomes = _simulated(arrivals)
    ttft = ([one.first_s for one in answers], [one.ttft_s for one in outcomes if one.ttft_s is not None])
    for percent in PERCENTS:
        live_s, said_s = (float(np.percentile(values, percent)) for values in ttft)
        _compare(run, f"TTFT p{percent}", live_s, said_s)
    tpot = ([fmean(one.gaps_s) for one in answers], [one.mean_itl_s for one in outcomes if one.mean_itl_s is not None])
    for percent in PERCENTS:
        live_s, said_s = (float(np.percentile(values, percent)) for values in tpot)
        _compare(run, f"TPOT p{percent}", live_s, said_s)
    if run.quick:
        return  # the gaps' p95 lies between steps with a prompt and steps without: it takes minutes to settle
    gaps_s = [gap for one in answers for gap in one.gaps_s]
    for percent, said in zip(PERCENTS, (result.itl.p50_s, result.itl.p95_s), strict=True):
        _compare(run, f"ITL p{percent}", float(np.percentile(gaps_s, percent)), said or 0.0)


def _compare(run: Run, name: str, live_s: float, said_s: float) -> None:
    run.say(f"  {name}: live {live_s * 1e3:.1f} ms, simulated {said_s * 1e3:.1f} ms")
    run.at_most(f"live worker, {name}: relative error", abs(said_s / live_s - 1), WITHIN)


def _simulated(arrivals: Sequence[Arrival]) -> tuple[Result, list[Outcome]]:
    found: list[Outcome] = []
    model = built_in(PROFILE).model()
    simulation = Simulation(
        spec(),
        arrivals,
        settings(WHOLE, {PREFILL: 0, DECODE: 1}, Latencies(hop_s=HOP_S)),
        failures=Random(0),
        known={PREFILL: model, DECODE: model},
        ended=found.append,
    )
    return simulation.run(), found


def _command(port: int) -> list[str]:
    program = str(Path(sys.executable).with_name("swingpool"))
    return [program, "worker", "--model", MODEL, "--host", "127.0.0.1", "--port", str(port), "--profile", PROFILE]


async def _drive(port: int, lasts_s: float, seed: int) -> tuple[list[Arrival], list[Answer]]:
    random = Random(seed)
    url = f"http://127.0.0.1:{port}"
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=ANSWER_S)) as session:
        await _ready(session, url)
        await _ask(session, url, Arrival(0.0, 16, 4), 0)
        begin_s = due_s = time.monotonic()
        arrivals: list[Arrival] = []
        tasks: list[asyncio.Task[Answer]] = []
        while (due_s := due_s + random.expovariate(PER_S)) < begin_s + lasts_s:
            await asyncio.sleep(max(0.0, due_s - time.monotonic()))
            request = Arrival(time.monotonic() - begin_s, random.randint(100, 2500), random.randint(5, 60))
            arrivals.append(request)
            tasks.append(asyncio.create_task(_ask(session, url, request, len(arrivals))))
        return arrivals, list(await asyncio.gather(*tasks))


async def _ready(session: aiohttp.ClientSession, url: str) -> None:
    until_s = time.monotonic() + READY_S
    while time.monotonic() < until_s:
        try:
            async with session.get(f"{url}/health") as response:
                if response.status == 200:
                    return
        except aiohttp.ClientError:
            pass
        await asyncio.sleep(0.1)
    raise TimeoutError(f"the simulated worker was not ready in {READY_S:g} s")


async def _ask(session: aiohttp.ClientSession, url: str, request: Arrival, number: int) -> Answer:
    # Prompts that begin differently, so that none is found in the prefix cache.
    prompt = [1 + number % 50_000, *([7] * (request.prompt_tokens - 1))]
    body = {
        "model": MODEL,
        "prompt": prompt,
        "max_tokens": request.output_tokens,
        "ignore_eos": True,
        "stream": True,
    }
    sent_s = time.monotonic()
    times_s: list[float] = []
    async with session.post(f"{url}/v1/completions", json=body) as response:
        response.raise_for_status()
        async for line in response.content:
            data = line.removeprefix(b"data: ").strip()
            if data and data != b"[DONE]" and json.loads(data).get("choices"):
                times_s.append(time.monotonic())
    if len(times_s) < request.output_tokens:
        raise ValueError(f"{len(times_s)} of {request.output_tokens} tokens came")
    return Answer(
        first_s=times_s[0] - sent_s,
        gaps_s=tuple(after - before for before, after in itertools.pairwise(times_s[: request.output_tokens])),
    )
