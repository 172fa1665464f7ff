"""Our router against vllm-router: requests per second, latency and processor time, before the same workers.

The workers are stand-ins that take no time (`benchmarks.wire.canned`), behind the P/D handshake, with streamed answers
of 64 tokens. Both routers are up at a time and are asked in short turns, and each turn of one is held against the
other's beside it: the speed of a shared machine changes by a third within seconds, so that nothing else means anything.
Both are started three times, since two starts of the same router may differ by a twentieth for as long as they run.
Then many streams token by token, in as many turns: what a router adds to the delay of each token. At last two routers
side by side, which share nothing: what a second one adds, and what each request takes then. The full run compiles our
picker first, where there is a C compiler; the quick one takes what is compiled already. The picker says itself which it
runs; SWINGPOOL_CORE=python keeps to plain Python.
"""

import json
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from statistics import median

from benchmarks import harness
from benchmarks.wire import stands
from benchmarks.wire.canned import TOKENS
from benchmarks.wire.stands import Router
from swingpool.compiled.core import PICKER
from tools import compiled

LEAST_RATIO = {1: 1.0, 16: 1.0, 64: 1.5, 256: 2.0}
"""By connections: how many requests per second ours serves at least, over vllm-router's."""
CONNECTIONS = tuple(LEAST_RATIO)
STREAM_RATE = 20.0
STREAM_TOKENS = 160
"""Of each stream; 8 s at its rate."""

Samples = dict[int, dict[str, list[dict[str, float]]]]
"""By connections and router: what each turn found."""
Start = Callable[[list[int], list[int]], AbstractContextManager[Router]]
STARTS: dict[str, Start] = {"ours": stands.ours, "vllm-router": stands.theirs}


def measure(run: harness.Run) -> None:
    if not run.quick:
        compile_picker(run)
    starts, seconds, turns = (1, 0.5, 4) if run.quick else (3, 1.5, 4)
    samples: Samples = {connections: {name: [] for name in STARTS} for connections in CONNECTIONS}
    with stands.workers(2, 2) as (prefill, decode):
        for number in range(1, starts + 1):
            with ExitStack() as stack:
                routers = {name: stack.enter_context(start(prefill, decode)) for name, start in STARTS.items()}
                run.figures["compiled"] = routers["ours"].compiled
                run.say(f"start {number} of {starts}, our picker is {_kind(routers['ours'])}")
                for connections, by_router in samples.items():
                    for name, each in in_turns(routers, connections, seconds=seconds, turns=turns).items():
                        by_router[name] += each
    found = {
        name: {connections: typical(by_router[name]) for connections, by_router in samples.items()} for name in STARTS
    }
    for connections in CONNECTIONS:
        for name in STARTS:
            say(run, name, connections, found[name][connections])
    over = {connections: ratios(each["ours"], each["vllm-router"]) for connections, each in samples.items()}
    run.figures |= {"by_connections": found, "over_vllm_router": over}
    bars(run, found["ours"], over)
    streams(run, 50 if run.quick else 500, turns=starts)
    replicas(run, starts * turns * seconds / 3)


def _kind(router: Router) -> str:
    return "compiled" if router.compiled else "plain Python"


def typical(samples: list[dict[str, float]]) -> dict[str, float]:
    """Return the medians of the turns' figures; of wrong answers, how many there were in all."""
    return {key: median(one[key] for one in samples) for key in samples[0]} | {
        "wrong": sum(one["wrong"] for one in samples)
    }


def in_turns(
    routers: dict[str, Router], connections: int, *, seconds: float, turns: int
) -> dict[str, list[dict[str, float]]]:
    """Return what each turn of each router found."""
    samples: dict[str, list[dict[str, float]]] = {name: [] for name in routers}
    for router in routers.values():
        load(router.port, connections, seconds, TOKENS)
    for turn in range(turns):
        for name in sorted(routers, reverse=turn % 2 == 1):
            samples[name].append(sample(routers[name], connections, seconds))
    return samples


def ratios(ours: list[dict[str, float]], theirs: list[dict[str, float]]) -> dict[str, float]:
    """Return the median of the turns' ratios."""
    pairs = list(zip(ours, theirs, strict=True))
    return {
        key: median(one[key] / max(1e-9, other[key]) for one, other in pairs) for key in ("requests_per_s", "p99_ms")
    }


def compile_picker(run: harness.Run) -> None:
    try:
        compiled.build(PICKER)
    except compiled.NotCompiledError as error:
        run.say(f"our picker is not compiled: {error}")


def sample(router: Router, connections: int, seconds: float) -> dict[str, float]:
    """Return what a load finds, and the processor time that the router took for each request, by part."""
    before = router.cpu_s()
    answer = load(router.port, connections, seconds, TOKENS)
    after = router.cpu_s()
    done = max(1.0, answer["requests"])
    parts = {f"cpu_ms_{part}": (after[part] - before[part]) / done * 1000 for part in before}
    return answer | parts | {"cpu_ms": sum(parts.values())}


def load(port: int, connections: int, seconds: float, tokens: int) -> dict[str, float]:
    """Run the client in a process of its own and return what it found."""
    command = [sys.executable, "-m", "benchmarks.wire.client", str(port), str(connections), str(seconds), str(tokens)]
    output = subprocess.run(command, check=True, capture_output=True, text=True, timeout=seconds + 120).stdout
    answer: dict[str, float] = json.loads(output)
    return answer


def say(run: harness.Run, name: str, connections: int, one: dict[str, float]) -> None:
    parts = ", ".join(f"{key.removeprefix('cpu_ms_')} {value:.2f}" for key, value in one.items() if "cpu_ms_" in key)
    run.say(
        f"{connections:4d} connections  {name:12s} {one['requests_per_s']:7.0f} requests/s  p50 {one['p50_ms']:7.2f} "
        f"ms  p99 {one['p99_ms']:7.2f} ms  CPU {one['cpu_ms']:.2f} ms/request ({parts})  wrong {one['wrong']:.0f}"
    )


def bars(run: harness.Run, ours: dict[int, dict[str, float]], over: dict[int, dict[str, float]]) -> None:
    for connections, least in LEAST_RATIO.items():
        name = f"requests/s over vllm-router's, {connections} connection{'s' if connections > 1 else ''}"
        run.at_least(name, over[connections]["requests_per_s"], least)
    run.at_most("p99 over vllm-router's, 256 connections", over[256]["p99_ms"], 0.5)
    run.at_most("CPU per request at 64 connections, ms", ours[64]["cpu_ms"], 0.8)
    run.at_most("wrong or failed answers of ours", sum(one["wrong"] for one in ours.values()), 0)


def streams(run: harness.Run, count: int, *, turns: int) -> None:
    """Measure what each router adds to the delay of a token, against no router at all: the medians of some turns."""
    every: dict[str, list[dict[str, float]]] = {name: [] for name in ("no router", *STARTS)}
    with stands.workers(2, 2, tokens_per_s=STREAM_RATE, tokens=STREAM_TOKENS) as (prefill, decode):
        for _ in range(turns):
            direct = load(decode[0], count, 0.1, STREAM_TOKENS)
            every["no router"].append(direct)
            for name, start in STARTS.items():
                with start(prefill, decode) as router:
                    every[name].append(_streamed(router, count, direct))
    found = {name: typical(each) for name, each in every.items()}
    direct = found.pop("no router")
    p50, p99 = direct["token_p50_ms"], direct["token_p99_ms"]
    run.say(f"{count} streams  no router    token p50 {p50:.2f} ms, p99 {p99:.2f} ms")
    for name, one in found.items():
        run.say(
            f"{count} streams  {name:12s} adds p50 {one['added_p50_ms']:.2f} ms, p99 {one['added_p99_ms']:.2f} ms a "
            f"token; {one['cpu_share']:.2f} cores; wrong {one['wrong']:.0f}"
        )
    run.figures["streams"] = {"count": count, "tokens_per_s_each": STREAM_RATE, "no_router": direct, **found}
    mine, other = found["ours"], found["vllm-router"]
    run.at_most("p99 that ours adds to a token's delay, over vllm-router's, ms", added_over(mine, other), 0.0)
    run.at_most("CPU of ours over vllm-router's, streaming", mine["cpu_share"] / max(1e-9, other["cpu_share"]), 1.0)
    run.at_most("wrong or failed streams of ours", mine["wrong"], 0)


def _streamed(router: Router, count: int, direct: dict[str, float]) -> dict[str, float]:
    before = sum(router.cpu_s().values())
    one = load(router.port, count, 0.1, STREAM_TOKENS)
    return {
        "added_p50_ms": one["token_p50_ms"] - direct["token_p50_ms"],
        "added_p99_ms": one["token_p99_ms"] - direct["token_p99_ms"],
        "cpu_share": (sum(router.cpu_s().values()) - before) * STREAM_RATE / STREAM_TOKENS,
        "wrong": one["wrong"],
    }


def added_over(ours: dict[str, float], theirs: dict[str, float]) -> float:
    """Return how much more one adds than the other at p99; less than without any router counts as nothing."""
    return max(0.0, ours["added_p99_ms"]) - max(0.0, theirs["added_p99_ms"])


def replicas(run: harness.Run, seconds: float) -> None:
    """Measure one and two whole routers before the same workers, all with the same number of connections together."""
    found: dict[int, dict[str, float]] = {}
    with stands.workers(2, 2) as (prefill, decode):
        for count in (1, 2):
            with ExitStack() as stack, ThreadPoolExecutor(count) as threads:
                routers = [stack.enter_context(stands.ours(prefill, decode)) for _ in range(count)]
                each = list(threads.map(partial(sample, connections=64 // count, seconds=seconds), routers))
            done = sum(one["requests"] for one in each)
            found[count] = {
                "requests_per_s": sum(one["requests_per_s"] for one in each),
                "cpu_ms": sum(one["cpu_ms"] * one["requests"] for one in each) / max(1.0, done),
                "p99_ms": max(one["p99_ms"] for one in each),
                "wrong": sum(one["wrong"] for one in each),
            }
            run.say(
                f"{count} of our routers, 64 connections in all: {found[count]['requests_per_s']:.0f} requests/s, p99 "
                f"{found[count]['p99_ms']:.2f} ms, CPU {found[count]['cpu_ms']:.2f} ms/request"
            )
    run.figures["routers_side_by_side"] = found


if __name__ == "__main__":
    sys.exit(harness.main("routing", measure, takes="about 7 minutes"))
