"""Real vLLM in pods of a real Kubernetes: an InferenceCluster whose workers the manager flips because of load.

The environment and the model are mounted from the node, since both nodes are this machine: packing 7 GB into an image
would show nothing more.
"""

import asyncio
import json
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from e2e.cluster.interface import Progress
from e2e.system.install import System
from e2e.system.router import wait_serving
from e2e.system.waiting import wait_until
from e2e.vllm.asking import Answered, Asked, at_once, at_rate, drawn, prompt_tokens_by_source, reset_prefix_cache
from e2e.vllm.checks import job
from e2e.vllm.environment import LIBRARIES, VLLMEnvironment
from e2e.vllm.finding import Finding
from e2e.vllm.server import BLOCK_TOKENS, MODEL
from e2e.vllm.stand import client
from swingpool_control import names

NAMESPACE, CLUSTER = "e2e-vllm", "tiny"
START_S = 900.0
_INSIDE = "/opt/real"
PAUSE_S = 1.0
LEAST_FLIPS = 20
WATCH_S = 5.0
"""Between two looks at the flips: the status keeps the last twenty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """A stretch of load with one character."""

    name: str
    requests: int
    per_s: float
    prompt_tokens: tuple[int, int]
    output_tokens: tuple[int, int]


PROMPTS = Stretch(name="prompts", requests=33, per_s=2.5, prompt_tokens=(300, 500), output_tokens=(4, 8))
GENERATION = Stretch(name="generation", requests=33, per_s=2.5, prompt_tokens=(16, 48), output_tokens=(80, 110))
STRETCHES = (PROMPTS, GENERATION) * 12
"""Each is more than one worker of its role bears, by the profile below; they take turns, and the swing worker too."""

PROFILE = {
    "format": "swingpool-profile/v1",
    "name": "tiny-cpu",
    "summary": "A tiny model on a share of two busy cores: slow on purpose, so that a few requests a second are a load",
    "models": [MODEL],
    "accelerator": {"products": [], "count": 1},
    "layout": {"tensor_parallel_size": 1, "max_batched_tokens": 2048, "max_sequences": 32},
    "step": {
        "base_s": 0.015,
        "prefill_base_s": 0.01,
        "prefill_token_s": 0.002,
        "prefill_context_token2_s": 1e-9,
        "sequence_s": 0.01,
        "context_token_s": 1e-7,
    },
    "kv": {"capacity_tokens": 16384, "bytes_per_token": 2048},
    "transfer": {"bytes_per_s": 1e8, "latency_s": 0.02},
    "startup_s": 60,
    "provenance": {"source": "Set by hand for this check", "licence": "Apache-2.0", "measured": False},
}


def manifest(environment: VLLMEnvironment) -> str:
    """Return the InferenceCluster and its profile, as JSON that kubectl takes."""
    home = Path(environment.python.resolve()).parents[1]
    template = _pod_template(environment, interpreter=home)
    pools = [("prefill", "Prefill"), ("decode", "Decode"), ("swing", "Swing")]
    cluster = {
        "apiVersion": "swingpool.dev/v1alpha1",
        "kind": "InferenceCluster",
        "metadata": {"name": CLUSTER},
        "spec": {
            "model": {"name": MODEL, "source": f"{_INSIDE}/model", "maxLength": 2048},
            "objectives": {"ttft": {"p95": "1500ms"}, "itl": {"p95": "150ms"}},
            "engine": {"version": "0.32", "maxRequestDuration": "60s", "kvTransfer": {"buffer": "Host"}},
            "profile": {"configMap": {"name": "tiny-cpu", "key": "profile.json"}},
            "scaling": {"stabilization": {"minRoleDuration": "5s"}},
            "pools": [
                {
                    "name": name,
                    "role": role,
                    "replicas": {"mode": "Fixed", "count": 1},
                    "engine": {
                        "blockSize": BLOCK_TOKENS,
                        "maxBatchedTokens": 2048,
                        "maxSequences": 32,
                        "extraArguments": [
                            *("--dtype=float32", "--enforce-eager", "--num-gpu-blocks-override=512"),
                            "--distributed-executor-backend=uni",
                        ],
                    },
                    "podTemplate": template,
                }
                for name, role in pools
            ],
        },
    }
    config = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "tiny-cpu"},
        "data": {"profile.json": json.dumps(PROFILE)},
    }
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": [config, cluster]})


def _pod_template(environment: VLLMEnvironment, *, interpreter: Path) -> dict[str, Any]:
    mounted = {"vllm": environment.directory, "model": environment.model, "python": interpreter}
    packages = f"lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"
    # Where a home directory is that only its owner may enter, the paths of the node would be closed to the pod's user.
    inside = {name: f"{_INSIDE}/{name}" for name in mounted}
    variables = {
        "PYTHONHOME": inside["python"],
        "PYTHONPATH": f"{inside['vllm']}/{packages}",
        "LD_LIBRARY_PATH": f"{inside['python']}/lib:{inside['vllm']}/{LIBRARIES}",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "OMP_NUM_THREADS": "1",
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_SERVER_DEV_MODE": "1",
        "HF_HUB_OFFLINE": "1",
    }
    return {
        "spec": {
            "volumes": [
                {"name": name, "hostPath": {"path": str(path), "type": "Directory"}} for name, path in mounted.items()
            ],
            "containers": [
                {
                    "name": names.CONTAINER_WORKER,
                    "command": [f"{inside['python']}/bin/python3", "-m", "vllm.entrypoints.openai.api_server"],
                    # Without a request it would get what all others leave, which on a busy machine is nothing.
                    "resources": {"requests": {"cpu": "600m"}},
                    "env": [{"name": name, "value": value} for name, value in variables.items()],
                    "volumeMounts": [
                        {"name": name, "mountPath": path, "readOnly": True} for name, path in inside.items()
                    ],
                }
            ],
        }
    }


def requests_of(stretches: Sequence[Stretch]) -> list[list[Asked]]:
    """Return the requests of each stretch, numbered through."""
    found, first = [], 0
    for index, stretch in enumerate(stretches):
        asked = drawn(
            stretch.requests,
            seed=100 + index,
            prompt_tokens=stretch.prompt_tokens,
            output_tokens=stretch.output_tokens,
            first=first,
        )
        found.append(asked)
        first += stretch.requests
    return found


def check(
    system: System, environment: VLLMEnvironment, *, image: str, directory: Path, say: Progress
) -> Iterator[Finding]:
    """Serve with vLLM in pods, change the load, look at roles and answers; yield what is found as it is known."""
    system.delete_namespace(NAMESPACE)
    system.cluster.kubectl("create", "namespace", NAMESPACE)  # not a restricted one: the environment is on the node
    try:
        applied = json.loads(manifest(environment))
        applied["items"][1]["spec"]["engine"]["image"] = image
        system.cluster.kubectl(
            "apply", "--server-side", "--validate=strict", "-n", NAMESPACE, "-f", "-", stdin=json.dumps(applied)
        )
        begin_s = time.monotonic()
        say("starting vLLM in three pods")
        wait_until("three workers that serve", lambda: len(_serving(system)), lambda n: n == 3, limit_s=START_S)
        url = wait_serving(system, NAMESPACE, CLUSTER, limit_s=60)
        say(f"the InferenceCluster serves after {time.monotonic() - begin_s:.0f} s")
        yield from asyncio.run(_load(system, url, say))
        say("a Job measures one of them")
        yield from job.check(system, namespace=NAMESPACE, pod=_serving(system)[0].name, directory=directory)
    finally:
        system.delete_namespace(NAMESPACE)


async def _load(system: System, url: str, say: Progress) -> list[Finding]:
    addresses = [f"http://{pod.address}:{names.PORT_WORKER}" for pod in _serving(system)]
    asked: list[Asked] = []
    routed: list[Answered] = []
    flips: dict[tuple[str, str], dict[str, Any]] = {}
    watching = asyncio.create_task(_watch_flips(system, flips))
    async with client() as session:
        before = await _sources(session, addresses)
        for number, (stretch, requests) in enumerate(zip(STRETCHES, requests_of(STRETCHES), strict=True)):
            say(f"{stretch.name}: {stretch.requests} requests, {stretch.per_s:g} a second; {len(flips)} flips so far")
            asked += requests
            routed += await at_rate(session, url, requests, per_s=stretch.per_s, seed=number)
            await asyncio.sleep(PAUSE_S)
        after = await _sources(session, addresses)
        await asyncio.sleep(WATCH_S)
        watching.cancel()
        say("asking one worker alone for the same")
        for address in addresses:
            await reset_prefix_cache(session, address)
        single = await at_once(session, addresses[0], asked, in_flight=12)
    failed = [one for one in (*routed, *single) if one.error]
    different = [b.number for a, b in zip(single, routed, strict=True) if a.tokens != b.tokens]
    prompt = sum(len(one.prompt) for one in asked)
    moved = after.get("external_kv_transfer", 0.0) - before.get("external_kv_transfer", 0.0)
    to_roles = {flip["to"] for flip in flips.values()}
    return [
        Finding(
            claim="vLLM in pods: answers are token-exact with a single worker's, and none fails",
            holds=not failed and not different,
            figures={"requests": len(routed), "failed": len(failed), "different": len(different)},
            notes=tuple(f"request {one.number}: {one.error}" for one in failed[:10]),
        ),
        Finding(
            claim="the manager flips the swing worker because of load, both ways",
            holds=len(flips) >= LEAST_FLIPS and len(to_roles) == 2,
            figures={"flips": len(flips)},
            notes=tuple(f"{one['decidedAt']}: to {one['to']}: {one['reason']}" for _, one in sorted(flips.items())),
        ),
        Finding(
            claim="the prompts' tokens came by transfer, where two workers served a request",
            holds=moved / prompt >= 0.5,
            figures={"prompt_tokens": prompt, "transferred_share": moved / prompt},
        ),
    ]


async def _sources(session: aiohttp.ClientSession, addresses: Sequence[str]) -> dict[str, float]:
    total: dict[str, float] = {}
    for address in addresses:
        for source, tokens in (await prompt_tokens_by_source(session, address)).items():
            total[source] = total.get(source, 0.0) + tokens
    return total


def _serving(system: System) -> list[Any]:
    return [pod for pod in system.kube.workers(namespace=NAMESPACE, cluster=CLUSTER) if pod.serves]


async def _watch_flips(system: System, found: dict[tuple[str, str], dict[str, Any]]) -> None:
    """Gather all flips that the status tells, by when they were decided and of whom."""
    while True:
        cluster = await asyncio.to_thread(system.kube.inference_cluster, namespace=NAMESPACE, name=CLUSTER)
        for flip in (cluster.get("status") or {}).get("flips") or []:
            found[(flip["decidedAt"], flip["worker"])] = flip
        await asyncio.sleep(WATCH_S)
