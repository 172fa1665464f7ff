"""Simulated workers as real processes on free loopback ports, for tests that need something to talk to."""

import http.client
import signal
import subprocess
from types import TracebackType

from e2e.ports import free_port
from tests.support.processes import simulated_worker
from tests.support.waiting import until

END_TIMEOUT_S = 30.0
MODEL = "simulated/test"


class WorkerProcess:
    """A `swingpool worker` that is started and ended by a `with` block.

    Args:
        arguments: further arguments.
        policy: kv_load_failure_policy.
        lease_s: kv_lease_duration.
        speedup: how much faster than the demo profile.
    """

    def __init__(
        self, *arguments: str, policy: str = "fail", lease_s: float = 30.0, speedup: float = 4.0, wait: bool = True
    ) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._wait = wait
        self._command, environment = simulated_worker(
            *arguments,
            model=MODEL,
            port=self.port,
            side_port=free_port(),
            policy=policy,
            lease_s=lease_s,
            speedup=speedup,
        )
        self._environment = environment | {"VLLM_HTTP_TIMEOUT_KEEP_ALIVE": "60"}
        self.process: subprocess.Popen[str] | None = None

    def __enter__(self) -> "WorkerProcess":
        """Start it, and wait until it is ready unless told otherwise."""
        self.process = subprocess.Popen(self._command, env=self._environment, stderr=subprocess.PIPE, text=True)
        if self._wait:
            self.await_health(200)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Kill it if it still runs."""
        assert self.process is not None
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(END_TIMEOUT_S)
        assert self.process.stderr is not None
        self.process.stderr.close()

    def await_health(self, status: int) -> None:
        """Wait until /health answers with a status.

        Raises:
            AssertionError: it ended, or did not answer so in time.
        """
        assert self.process is not None
        process = self.process

        def answers() -> bool:
            assert process.poll() is None, f"the worker ended with {process.returncode}"
            return self.health() == status

        until(f"/health answers {status}", answers)

    def health(self, timeout_s: float = 2.0) -> int | None:
        """Return the status of /health, or None if nobody answers."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout_s)
        try:
            connection.request("GET", "/health")
            return connection.getresponse().status
        except OSError:
            return None
        finally:
            connection.close()

    def terminate(self) -> None:
        """Send SIGTERM."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)

    def end(self) -> int:
        """Wait until it has ended; return its exit code."""
        assert self.process is not None
        return self.process.wait(END_TIMEOUT_S)

    def errors(self) -> str:
        """Return what it wrote, once it has ended."""
        assert self.process is not None
        assert self.process.stderr is not None
        return self.process.stderr.read()
