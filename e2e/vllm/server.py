"""One real vLLM server as a process group, started small: three of them share a machine of two cores."""

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2

from e2e.ports import free_port
from e2e.vllm.environment import LIBRARIES, VLLMEnvironment

MODEL = "tiny"
START_S = 600.0
"""Of which a quiet machine of two cores needs a minute or two for three servers side by side."""
END_S = 20.0
BLOCK_TOKENS = 32
"""vLLM's CPU build is slow with blocks that are no multiple of 32."""

Connector = Mapping[str, Any]

NIXL: Connector = {
    "kv_connector": "NixlConnector",
    "kv_role": "kv_both",
    "kv_buffer_device": "cpu",
    "kv_load_failure_policy": "recompute",
}
"""The configuration that Swingpool renders, for memory instead of a GPU's."""


class ServerError(RuntimeError):
    """A server that did not start or died; the message ends with what it wrote last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions:
    """How a server is started."""

    name: str
    connector: Connector = field(default_factory=lambda: NIXL)
    blocks: int = 512
    block_tokens: int = BLOCK_TOKENS
    longest: int = 2048
    arguments: tuple[str, ...] = ()
    core: int | None = None
    """The processor core that all its processes keep to; None is any."""


class VLLMServer:
    """A running server. It and the processes that it starts are one process group, which ends as one."""

    def __init__(self, environment: VLLMEnvironment, options: ServerOptions, directory: Path) -> None:
        self.options = options
        self.port, self.side_port = free_port(), free_port()
        self.log = directory / f"{options.name}.log"
        self._environment = environment
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        """`ip:port` of its HTTP API."""
        return f"127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        """Its HTTP API."""
        return f"http://{self.address}"

    @property
    def running(self) -> bool:
        """Whether its first process lives."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start it, again if it was killed; it keeps its ports."""
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command(),
                env=os.environ | self._variables(),
                cwd=self.log.parent,  # else `python -m` would look for modules in the source tree
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        if self.options.core is not None:
            os.sched_setaffinity(self._process.pid, {self.options.core})  # before it has threads or children

    def await_health(self, *, limit_s: float = START_S) -> None:
        """Wait until it serves.

        Raises:
            ServerError: it died or took too long.
        """
        end_s = time.monotonic() + limit_s
        while time.monotonic() < end_s:
            if not self.running:
                raise ServerError(f"vLLM server {self.options.name} ended by itself:\n{self.tail()}")
            try:
                if httpx2.get(f"{self.url}/health", timeout=2).status_code == 200:
                    return
            except httpx2.HTTPError:
                pass
            time.sleep(0.25)
        raise ServerError(f"vLLM server {self.options.name} is not healthy after {limit_s:g} s:\n{self.tail()}")

    def signal(self, number: signal.Signals) -> None:
        """Send all its processes a signal."""
        assert self._process is not None
        os.killpg(self._process.pid, number)
        if number is signal.SIGKILL:
            self._process.wait()

    def stop(self) -> None:
        """End it, by force if it takes long."""
        if self._process is None:
            return
        try:
            os.killpg(self._process.pid, signal.SIGCONT)
            os.killpg(self._process.pid, signal.SIGTERM)
            self._process.wait(END_S)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            pass
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)  # its children may outlive it
        self._process.wait()
        self._process = None

    def tail(self) -> str:
        """Return what it wrote last."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-25:])

    def _command(self) -> list[str]:
        options = self.options
        return [
            *(str(self._environment.python), "-m", "vllm.entrypoints.openai.api_server"),
            *("--model", str(self._environment.model), "--served-model-name", MODEL, "--dtype", "float32"),
            *("--host", "127.0.0.1", "--port", str(self.port), "--enforce-eager", "--disable-uvicorn-access-log"),
            *("--max-model-len", str(options.longest), "--block-size", str(options.block_tokens)),
            *("--num-gpu-blocks-override", str(options.blocks)),
            # One process for scheduler and model: between two of them vLLM's queue spins, on a machine of two cores.
            *("--distributed-executor-backend", "uni"),
            *("--kv-transfer-config", json.dumps(dict(options.connector))),
            *options.arguments,
        ]

    def _variables(self) -> dict[str, str]:
        return {
            "VLLM_NIXL_SIDE_CHANNEL_HOST": "127.0.0.1",
            "VLLM_NIXL_SIDE_CHANNEL_PORT": str(self.side_port),
            "LD_LIBRARY_PATH": f"{self._environment.directory / LIBRARIES}:{os.environ.get('LD_LIBRARY_PATH', '')}",
            "VLLM_CPU_KVCACHE_SPACE": "1",
            "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # else the CPU build takes two processes whatever is asked for
            "VLLM_CPU_OMP_THREADS_BIND": "nobind",
            "OMP_NUM_THREADS": "1",
            "VLLM_HTTP_TIMEOUT_KEEP_ALIVE": "120",
            "VLLM_NO_USAGE_STATS": "1",
            "VLLM_SERVER_DEV_MODE": "1",  # for /reset_prefix_cache
            "HF_HUB_OFFLINE": "1",
            "PYTHONUNBUFFERED": "1",
        }
