"""A run of the load generator in the background, as the demo and the scenarios use it."""

import json
import subprocess
import sys
import threading
from pathlib import Path
from types import TracebackType
from typing import Any

from e2e.load.plan import Plan, to_json
from e2e.load.record import Record

STOP_S = 15.0
"""How long a stopped run may take beyond its requests' time limit."""


class LoadError(RuntimeError):
    """The load generator itself failed."""


class Load:
    """A running load generator. As a context manager it is stopped at the end, however that comes."""

    def __init__(self, plan: Plan, directory: Path) -> None:
        """Start a run; its plan, records and log go to `directory`."""
        directory.mkdir(parents=True, exist_ok=True)
        self.plan = plan
        self.snapshots: list[dict[str, Any]] = []
        """One a second, oldest first."""
        self._records = directory / "records.jsonl"
        self._records.unlink(missing_ok=True)
        self._log = directory / "load.log"
        plan_file = directory / "plan.json"
        plan_file.write_text(json.dumps(to_json(plan)))
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "e2e.load", str(plan_file), "--records", str(self._records)],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=Path(__file__).parents[2],
            )
        self._reader = threading.Thread(target=self._read, name="load-snapshots", daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.snapshots.append(json.loads(line))

    def __enter__(self) -> "Load":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.poll() is None:
            self._process.terminate()
        try:
            self._process.wait(STOP_S if kind else self.plan.request_timeout_s + STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join(5)

    @property
    def running(self) -> bool:
        """Whether requests are being sent, or answers waited for."""
        return self._process.poll() is None

    @property
    def last(self) -> dict[str, Any]:
        """The newest snapshot; empty in the first second."""
        return self.snapshots[-1] if self.snapshots else {}

    @property
    def start_unix_s(self) -> float | None:
        """When the run began; None until the first snapshot."""
        if not self.snapshots:
            return None
        return float(self.snapshots[0]["unix_s"]) - float(self.snapshots[0]["now_s"])

    def stop(self) -> list[Record]:
        """Send nothing more, wait for the answers under way and return all records."""
        if self.running:
            self._process.terminate()
        return self.wait()

    def wait(self) -> list[Record]:
        """Wait for the end of the plan and return all records.

        Raises:
            LoadError: the generator failed, or did not end in time.
        """
        try:
            code = self._process.wait(self.plan.seconds + self.plan.request_timeout_s + STOP_S)
        except subprocess.TimeoutExpired as error:
            self._process.kill()
            raise LoadError(f"the load generator did not end; its log is {self._log}") from error
        self._reader.join(5)
        if code != 0 or not self._records.exists():
            raise LoadError(f"the load generator ended with {code}: {self._log.read_text()[-1000:]}")
        return read_records(self._records)


def read_records(path: Path) -> list[Record]:
    """Read the records of a run."""
    with path.open() as lines:
        return [Record.from_json(json.loads(line)) for line in lines]
