"""Asking AIConfigurator: find an interpreter that has it, run the bridge there, send requests, take answers."""

import importlib.util
import itertools
import json
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

VERSION = "0.12.0"
"""The version that the bridge was written for: the last that ships its tables and runs without a GPU."""
VARIABLE = "SWINGPOOL_AICONFIGURATOR"
BRIDGE = Path(__file__).with_name("bridge.py")


class AIConfiguratorError(RuntimeError):
    """AIConfigurator is not at hand, or could not answer; says what to do or what it said."""


class RefusedError(AIConfiguratorError):
    """AIConfigurator's own error, in its words: the same request would fail the same way again."""


def home() -> Path:
    """Return the environment that `python -m tools.aiconfigurator` makes, whether it exists or not."""
    cache = Path(os.environ.get("SWINGPOOL_CACHE") or "~/.cache/swingpool").expanduser()
    return cache / "aiconfigurator" / VERSION


def interpreter() -> Path:
    """Return a Python interpreter that has AIConfigurator.

    It is the one that `SWINGPOOL_AICONFIGURATOR` names; else this one, if the extra is installed; else the one of the
    cached environment.

    Raises:
        AIConfiguratorError: there is none; says how to get one.
    """
    if named := os.environ.get(VARIABLE):
        if not Path(named).is_file():
            raise AIConfiguratorError(f"{VARIABLE} names {named}, which is no file; it must be a Python interpreter")
        return Path(named)
    if importlib.util.find_spec("aiconfigurator") is not None:
        return Path(sys.executable)
    cached = home() / "bin" / "python"
    if cached.is_file():
        return cached
    raise AIConfiguratorError(
        f"AIConfigurator is not installed: pip install 'swingpool[aiconfigurator]', or name an interpreter that has "
        f"version {VERSION} in {VARIABLE}"
    )


class AIConfigurator:
    """AIConfigurator in a process of its own, from `__enter__` to `__exit__`; loading its tables takes some seconds."""

    def __init__(self, python: Path) -> None:
        self._python = python
        self._process: subprocess.Popen[str] | None = None
        self._numbers = itertools.count()

    def __enter__(self) -> Self:
        """Start the process."""
        self._process = subprocess.Popen(
            [str(self._python), "-W", "ignore", str(BRIDGE)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the process: it ends by itself when nothing more can come, or is killed."""
        process, self._process = self._process, None
        if process is None:
            return
        if error is None and process.stdin is not None:
            process.stdin.close()
            process.wait()
        else:
            process.kill()
            process.wait()
        for stream in (process.stdin, process.stdout):
            if stream is not None and not stream.closed:
                # What could not be written any more is written again on closing, in vain.
                with suppress(BrokenPipeError):
                    stream.close()

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """Return the answer to a request of the bridge.

        Raises:
            RefusedError: AIConfigurator raised an error.
            AIConfiguratorError: its process ended.
        """
        process = self._process
        if process is None or process.stdin is None or process.stdout is None:
            raise AIConfiguratorError("AIConfigurator is asked outside of its context")
        number = next(self._numbers)
        try:
            process.stdin.write(json.dumps(request | {"id": number}) + "\n")
            process.stdin.flush()
            line = process.stdout.readline()
        except OSError as error:
            raise AIConfiguratorError(f"{self._python}: the bridge ended: {error}") from error
        if not line:
            raise AIConfiguratorError(f"{self._python}: the bridge ended with exit code {process.wait()}")
        answer = json.loads(line)
        if "error" in answer:
            raise RefusedError(answer["error"])
        found: dict[str, Any] = answer["answer"]
        return found
