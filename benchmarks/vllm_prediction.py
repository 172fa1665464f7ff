"""What the fitted model and the simulator say of real vLLM, beside what was measured.

It starts two vLLM servers without a GPU and has `swingpool profile measure` make a profile of them. It sends a load of
another kind to one of them, and then five minutes to both through Envoy and our picker while their roles are exchanged
every half minute. The same requests at the same moments go through the simulator with that profile.

How fast a shared machine is changes by a fifth within minutes. So half of the profile's samples are taken before the
loads and half after them; what the loads themselves brought plays no part in it.
"""

import asyncio
import itertools
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from benchmarks.harness import Run, main
from e2e.cluster.paths import ROOT
from e2e.load.summary import percentile
from e2e.vllm import environment as environments
from e2e.vllm.asking import WORDS, Answered, Asked, ask
from e2e.vllm.server import ServerOptions
from e2e.vllm.stand import Stand, client
from swingpool_control import names
from swingpool_control.actions import PatchWorker
from swingpool_control.api.status import FlipRecord, InferenceClusterStatus
from swingpool_control.api.v1alpha1 import InferenceClusterSpec
from swingpool_control.simulation.cluster import Simulation
from swingpool_control.simulation.policies.interface import Board, Deciding, Given, Placing, Policy
from swingpool_control.simulation.result import Result
from swingpool_control.simulation.settings import START_UNIX_S, Latencies, Settings
from swingpool_control.simulation.traffic import Arrival

MODEL_WITHIN = 0.15
SIMULATOR_WITHIN = 0.20
FRESH_S, PAIR_S = 90.0, 300.0
FLIP_EVERY_S = 30.0
FRESH_PER_S, PAIR_PER_S = 0.6, 0.2
"""So that two servers seldom compute at once: on one machine each slows the other, which no profile of one tells."""
HOP_REPEATS, HOP_TOKENS = 25, 32
REPEATS = (6, 12)
"""Samples of each point of the profile, before the loads and after them in all."""
SEQUENCES, BATCHED_TOKENS, LONGEST = 8, 512, 1024
KV_BYTES_PER_TOKEN = 2 * 8 * 2 * 64 * 4
"""Keys and values, 8 layers, 2 KV heads of 64, float32: the small model's."""
PROMPT_TOKENS, OUTPUT_TOKENS = (50, 450), (4, 16)
SERVER = ("--max-num-batched-tokens", str(BATCHED_TOKENS), "--max-num-seqs", "16", "--no-async-scheduling")
"""Without a device that computes beside it, vLLM's scheduling ahead computes each step before it tells what the last
one gave: every token comes a step late, and a request that joins waits two steps more. Our engine's model does not."""
WORKERS = ("w0", "w1")
OUT = ROOT / "build" / "vllm-prediction"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """A load as it was sent, and what came back."""

    arrivals: tuple[Arrival, ...]
    answers: tuple[Answered, ...]

    def percentile(self, metric: str, percent: float) -> float:
        """Return a percentile of `ttft` or `itl`, seconds."""
        if metric == "ttft":
            values = [one.first_s for one in self.answers if one.first_s is not None]
        else:
            values = [gap for one in self.answers for gap in one.gaps_s]
        found = percentile(sorted(values), percent)
        return float("nan") if found is None else found


def measure(run: Run) -> None:
    """Measure, or say why not."""
    if run.quick:
        run.skipped.append("real vLLM takes longer than a quick run may: run it without --quick")
        run.say(f"skipped: {run.skipped[-1]}")
        return
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(1))  # so that the servers end too
    environment = environments.environment(run.say, model="small")
    with Stand(environment, OUT, run.say) as stand:
        stand.start(
            *(
                ServerOptions(name=name, longest=LONGEST, arguments=SERVER, core=core)
                for name, core in zip(WORKERS, _cores(), strict=True)
            )
        )
        (OUT / "profile.journal.jsonl").unlink(missing_ok=True)  # of an earlier run: nothing is taken over
        _profile(run, stand, repeats=REPEATS[0])
        hop_s = asyncio.run(_hop_s(stand))
        run.figures["hop_s"] = round(hop_s, 5)
        run.say(f"the router adds {hop_s * 1e3:.1f} ms to a request")
        run.say(f"a fresh load on one worker, {FRESH_S:g} s")
        fresh = asyncio.run(_send(stand.servers[WORKERS[0]].url, seconds=FRESH_S, per_s=FRESH_PER_S, seed=run.seed + 1))
        _keep("fresh", fresh)
        run.say(f"{PAIR_S:g} s through the router while the two exchange their roles every {FLIP_EVERY_S:g} s")
        pair, flips_at_s = asyncio.run(_pair(stand, seed=run.seed + 2))
        _keep("pair", pair)
        run.say(f"what the router decided: {stand.decisions()}")
        profile = _profile(run, stand, repeats=REPEATS[1])
    simulated = simulate(profile, fresh.arrivals, workers=1, flips_at_s=())
    _compare(run, "fitted model, fresh load", fresh, simulated, percents=(50,), within=MODEL_WITHIN)
    simulated = simulate(profile, pair.arrivals, workers=2, flips_at_s=flips_at_s, hop_s=hop_s)
    _compare(run, "simulator, P/D with flips", pair, simulated, percents=(50, 95), within=SIMULATOR_WITHIN)


def _cores() -> tuple[int | None, ...]:
    """Return a core for each server, as a worker has accelerators of its own; any core where there are too few."""
    cores = sorted(os.sched_getaffinity(0))
    return tuple(cores[: len(WORKERS)]) if len(cores) >= len(WORKERS) else (None,) * len(WORKERS)


def _profile(run: Run, stand: Stand, *, repeats: int) -> str:
    """Measure on until every point has so many samples; return the profile by all there are."""
    output = OUT / "profile.json"
    command = [
        *(str(Path(sys.executable).with_name("swingpool")), "profile", "measure", stand.servers[WORKERS[0]].url),
        *("--pair", stand.servers[WORKERS[1]].url, "--accelerator", "CPU", "--name", "small-cpu"),
        *("--kv-bytes-per-token", str(KV_BYTES_PER_TOKEN), "--max-batched-tokens", str(BATCHED_TOKENS)),
        *("--max-sequences", str(SEQUENCES), "--max-prompt-tokens", str(PROMPT_TOKENS[1]), "--startup-s", "60"),
        # So many of each point, sure or not: what is left of chance stands in the profile's error.
        *("--least-repeats", str(repeats), "--tolerance", "0.5", "--pause", "0.5", "--force", "-o", str(output)),
    ]
    begin_s = time.monotonic()
    subprocess.run(command, check=True)
    run.figures[f"profiling_to_{repeats}_repeats_s"] = round(time.monotonic() - begin_s, 1)
    return output.read_text()


async def _hop_s(stand: Stand) -> float:
    """Return what the router adds to the first token of a request: of one worker, asked directly and through it."""
    stand.set_roles(w0=names.ROLE_DECODE)
    await asyncio.to_thread(stand.await_rotation)
    rng = Random(0)
    times_s: dict[str, list[float]] = {stand.servers[WORKERS[0]].url: [], stand.url: []}
    async with client() as session:
        for _ in range(HOP_REPEATS):
            for url, found in times_s.items():
                prompt = tuple(rng.randrange(WORDS) for _ in range(HOP_TOKENS))
                answer = await ask(
                    session, url, Asked(number=0, prompt=prompt, output_tokens=1, stream=True, chat=False, ids=True)
                )
                found.append(answer.first_s or 0.0)
    stand.set_roles(w0="")
    direct, routed = (statistics.median(found) for found in times_s.values())
    return max(0.0, routed - direct)


def _keep(name: str, sent: Sent) -> None:
    """Write down what was measured, for whoever looks for the cause of an error."""
    rows = [
        {"at_s": at.at_s, "prompt_tokens": at.prompt_tokens, "ttft_s": answer.first_s, "itl_s": answer.gaps_s}
        for at, answer in zip(sent.arrivals, sent.answers, strict=True)
    ]
    (OUT / f"{name}.json").write_text(json.dumps(rows))


def _requests(count: int, rng: Random) -> list[Asked]:
    return [
        Asked(
            number=number,
            prompt=tuple(rng.randrange(WORDS) for _ in range(rng.randint(*PROMPT_TOKENS))),
            output_tokens=rng.randint(*OUTPUT_TOKENS),
            stream=True,
            chat=False,
            ids=True,  # as the sweep sends them: tokenizing is no part of the engine's model
        )
        for number in range(count)
    ]


async def _send(url: str, *, seconds: float, per_s: float, seed: int) -> Sent:
    """Send requests at random moments for so long."""
    rng = Random(seed)
    gaps_s = list(itertools.takewhile(lambda _: True, (rng.expovariate(per_s) for _ in range(int(seconds * per_s)))))
    arrivals, tasks = [], []
    async with client() as session:
        begin_s = due_s = time.monotonic()
        for asked, gap_s in zip(_requests(len(gaps_s), rng), gaps_s, strict=True):
            due_s += gap_s
            await asyncio.sleep(max(0.0, due_s - time.monotonic()))
            arrivals.append(Arrival(time.monotonic() - begin_s, len(asked.prompt), asked.output_tokens))
            tasks.append(asyncio.create_task(ask(session, url, asked)))
        return Sent(arrivals=tuple(arrivals), answers=tuple(await asyncio.gather(*tasks)))


async def _pair(stand: Stand, *, seed: int) -> tuple[Sent, tuple[float, ...]]:
    """Send requests through the router while the workers exchange their roles; return when they did too."""
    flips_at_s: list[float] = []
    stand.set_roles(**_pair_roles(0))
    await asyncio.to_thread(stand.await_rotation)
    begin_s = time.monotonic()

    async def flip() -> None:
        for step in itertools.count(1):
            await asyncio.sleep(max(0.0, begin_s + step * FLIP_EVERY_S - time.monotonic()))
            flips_at_s.append(time.monotonic() - begin_s)
            stand.set_roles(**_pair_roles(step))

    flipping = asyncio.create_task(flip())
    sent = await _send(stand.url, seconds=PAIR_S, per_s=PAIR_PER_S, seed=seed)
    flipping.cancel()
    return sent, tuple(flips_at_s)


def _pair_roles(step: int) -> dict[str, str]:
    order = (names.ROLE_PREFILL, names.ROLE_DECODE)
    return dict(zip(WORKERS, order if step % 2 == 0 else order[::-1], strict=True))


class Exchanging:
    """A policy that exchanges two workers' roles at given moments; one worker alone keeps its own."""

    flips: tuple[FlipRecord, ...] = ()
    placing = Placing()

    def __init__(self, _: Given, *, at_s: Sequence[float], workers: int) -> None:
        self._at_s = list(at_s)
        self._step = 0 if workers > 1 else -1

    def round(self, board: Board, *, now_unix_s: float) -> None:
        """Give the first roles, and exchange them when it is time."""
        now_s = now_unix_s - START_UNIX_S
        if self._step < 0:
            return
        while self._at_s and now_s >= self._at_s[0]:
            self._at_s.pop(0)
            self._step += 1
        view = board.view(InferenceClusterStatus())
        wanted = _pair_roles(self._step).values()
        board.act(
            tuple(
                PatchWorker(
                    pod=worker.pod,
                    uid=worker.uid,
                    expected_role=worker.role,
                    labels={names.LABEL_ROLE: role},
                    reason="as it was",
                )
                for worker, role in zip(view.workers, wanted, strict=True)
                if worker.role != role
            )
        )


def simulate(
    profile: str, arrivals: Sequence[Arrival], *, workers: int, flips_at_s: Sequence[float], hop_s: float = 0.0
) -> Result:
    """Return what the simulator makes of requests, with a router that adds `hop_s` to each."""
    spec = InferenceClusterSpec.model_validate(
        {
            "model": {"name": "tiny"},
            "objectives": {"ttft": {"p95": "10s"}, "itl": {"p95": "1s"}},
            "engine": {"type": "Simulated"},
            "profile": {"configMap": {"name": "measured"}},
            "pools": [
                {"name": "swing", "role": "Swing", "replicas": {"min": 0, "max": 2}, "engine": {"blockSize": 32}}
            ],
        }
    )

    def make(given: Given) -> Deciding:
        return Exchanging(given, at_s=flips_at_s, workers=workers)

    settings = Settings(
        policy=Policy(name="exchanging", about="Exchanges two workers' roles.", make=make, swings=True),
        replicas={"swing": workers},
        swing_period_s=0.25,
        latencies=Latencies(hop_s=hop_s),
        prefix_caching=False,
    )
    return Simulation(spec, arrivals, settings, failures=Random(0), profile_text=profile).run()


def _compare(run: Run, title: str, sent: Sent, simulated: Result, *, percents: Sequence[int], within: float) -> None:
    failed = [one.error for one in sent.answers if one.error]
    run.say(f"{title}: {len(sent.answers)} requests, {len(failed)} failed {failed[:2]}")
    for metric, percent in itertools.product(("ttft", "itl"), percents):
        measured_s = sent.percentile(metric, percent)
        said_s = getattr(getattr(simulated, metric), f"p{percent}_s") or float("nan")
        error = abs(said_s / measured_s - 1)
        run.say(
            f"  {metric} p{percent}: measured {measured_s * 1e3:8.2f} ms, "
            f"predicted {said_s * 1e3:8.2f} ms ({error:.1%})"
        )
        name = f"{title.split(',', maxsplit=1)[0].replace(' ', '_')}_{metric}_p{percent}"
        run.figures[f"{name}_measured_s"] = round(measured_s, 5)
        run.figures[f"{name}_predicted_s"] = round(said_s, 5)
        run.at_most(f"{name}_error", error, within)


if __name__ == "__main__":
    if "--quick" in sys.argv:
        main("vllm_prediction", measure, takes="about 14 minutes")
        sys.exit(0)  # it says loudly that it measured nothing; that is no fault
    sys.exit(main("vllm_prediction", measure, takes="about 14 minutes"))
