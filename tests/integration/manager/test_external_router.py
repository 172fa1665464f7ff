"""vllm-router as it comes from its makers before simulated workers: it follows the labels, and loses nothing to a flip.

The API server, the manager, the router and the workers are real processes; pods have no kubelet, so each is given an
address of loopback at which its worker listens.
"""

import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx2
import pytest

from benchmarks.wire import peer
from e2e.load.background import Load
from e2e.load.plan import Lengths, Phase, Plan
from e2e.ports import free_port
from swingpool_control import names
from tests.support.manager_stand import Place, make_ready, manager
from tests.support.processes import simulated_worker
from tests.support.waiting import until

MODEL = "demo"
CLUSTER = "outside"
SPEEDUP = 0.5
ROLE = "llm-d.ai/role"
OUTSIDE = {
    "model": {"name": MODEL, "maxLength": 8192},
    "objectives": {"ttft": {"p95": "1s"}, "itl": {"p95": "60ms"}},
    "engine": {"type": "Simulated", "simulated": {"speedup": str(SPEEDUP)}},
    "profile": {"builtIn": "demo"},
    "router": {"type": "External", "external": {"drainSettle": "2s"}},
    "scaling": {"stabilization": {"minRoleDuration": "5s"}},
}
POOLS: list[dict[str, Any]] = [
    {"name": "prefill", "role": "Prefill", "replicas": {"mode": "Fixed", "count": 1}},
    {"name": "decode", "role": "Decode", "replicas": {"mode": "Fixed", "count": 1}},
    {"name": "swing", "role": "Swing", "replicas": {"min": 2, "max": 2}},
]
PROMPTS = Phase(
    name="prompts",
    seconds=60,
    requests_per_s=14,
    prompt_tokens=Lengths(mean=450),
    output_tokens=Lengths(mean=12),
    chat_share=0.0,
)


class Outside:
    """Workers for every pod of the cluster, and vllm-router before them."""

    def __init__(self, here: Place, directory: Path) -> None:
        self._here, self._directory = here, directory
        self._stack = ExitStack()
        self._processes: list[subprocess.Popen[bytes]] = []
        self.port = free_port()

    def start(self) -> None:
        pods = until("four pods", lambda: (found := self.pods()) if len(self.pods()) == 4 else None)
        addresses = {pod["metadata"]["name"]: f"127.0.71.{number}" for number, pod in enumerate(pods, start=1)}
        for pod, address in addresses.items():
            command, environment = simulated_worker(
                model=MODEL, port=names.PORT_WORKER, side_port=5600, policy="recompute", speedup=SPEEDUP
            )
            command[command.index("127.0.0.1")] = address
            self._spawn(pod, command, environment | {"VLLM_NIXL_SIDE_CHANNEL_HOST": address})
        for pod, address in addresses.items():
            url = f"http://{address}:{names.PORT_WORKER}/health"
            until("the worker answers", lambda: self._healthy(url))  # noqa: B023 - called at once
            make_ready(self._here, pod, address=address)
        selectors = [f"{names.LABEL_CLUSTER}={CLUSTER}"]
        command = [
            *(str(peer.installed()), "--host", "127.0.0.1", "--port", str(self.port)),
            *("--prometheus-host", "127.0.0.1", "--prometheus-port", str(free_port())),
            *("--vllm-pd-disaggregation", "--service-discovery", "--service-discovery-port", str(names.PORT_WORKER)),
            *("--service-discovery-namespace", self._here.namespace),
            *("--prefill-selector", *selectors, f"{ROLE}=prefill", "--decode-selector", *selectors, f"{ROLE}=decode"),
            *("--policy", "round_robin", "--kv-connector", "nixl"),
        ]
        self._spawn("vllm-router", command, os.environ | {"KUBECONFIG": str(self._here.kubeconfig())})
        until(f"the router has workers\n{self.log()}", self._serves)

    def _serves(self) -> bool:
        try:
            body = {"model": MODEL, "prompt": "one two three", "max_tokens": 2}
            return httpx2.post(f"http://127.0.0.1:{self.port}/v1/completions", json=body, timeout=10).status_code == 200
        except httpx2.HTTPError:
            return False

    def _healthy(self, url: str) -> bool:
        try:
            return httpx2.get(url, timeout=2).status_code == 200
        except httpx2.HTTPError:
            return False

    def pods(self) -> list[dict[str, Any]]:
        return self._here.find(
            "Pod", f"{names.LABEL_CLUSTER}={CLUSTER},{names.LABEL_COMPONENT}={names.COMPONENT_WORKER}"
        )

    def roles(self) -> list[str]:
        return sorted(pod["metadata"]["labels"].get(ROLE, "") for pod in self.pods())

    def log(self) -> str:
        path = self._directory / "vllm-router.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def stop(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait()
        self._stack.close()

    def _spawn(self, name: str, command: list[str], environment: Any) -> None:
        output = self._stack.enter_context((self._directory / f"{name}.log").open("ab"))
        self._processes.append(subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=environment))


@pytest.fixture
def outside(here: Place, clusters: Any, tmp_path: Path) -> Iterator[Outside]:
    clusters(CLUSTER, *POOLS, **OUTSIDE)
    one = Outside(here, tmp_path)
    with manager(here, "--sizing-period=2"):
        try:
            one.start()
            yield one
        finally:
            one.stop()


def flips(here: Place) -> list[dict[str, Any]]:
    status = (here.get("InferenceCluster", CLUSTER) or {}).get("status") or {}
    return list(status.get("flips") or [])


def test_roles_follow_the_load_before_vllm_router_and_no_request_is_lost(
    here: Place, outside: Outside, tmp_path: Path
) -> None:
    before = outside.roles()
    assert before.count("prefill") < 3
    url = f"http://127.0.0.1:{outside.port}"
    with Load(Plan(url=url, model=MODEL, phases=(PROMPTS,)), tmp_path / "load") as load:
        until("three workers compute prompts", lambda: outside.roles().count("prefill") == 3)
        flip = until(
            "the flip is served", lambda: next((one for one in flips(here) if one["outcome"] == "Serving"), None)
        )
        records = load.stop()
    assert (flip["from"], flip["to"]) == ("decode", "prefill")
    assert len(records) > 50
    lost = [one for one in records if not one.succeeded]
    assert not lost, f"{len(lost)} of {len(records)} lost, such as {lost[0]}\n{outside.log()[-3000:]}"
