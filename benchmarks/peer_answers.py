"""AIConfigurator's answers, remembered between runs: the same version answers the same request the same way.

They lie beside its environment. Without it, remembered answers still do.
"""

import json
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from swingpool.aiconfigurator.client import AIConfigurator, RefusedError, home, interpreter

FILE = home().with_name(f"answers-{home().name}.jsonl")


class Answers:
    """Answers to requests of the bridge, from memory or from AIConfigurator."""

    def __init__(self, file: Path | None = None) -> None:
        file = FILE if file is None else file
        self._file = file
        self._known: dict[str, dict[str, Any]] = {}
        self._peer: AIConfigurator | None = None
        self.asked = 0
        """Requests that no earlier run had made."""
        if file.is_file():
            for line in file.read_text(encoding="utf-8").splitlines():
                entry = json.loads(line)
                self._known[json.dumps(entry["request"], sort_keys=True)] = entry

    def __enter__(self) -> Self:
        """Start nothing: AIConfigurator is started when something new is asked."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End AIConfigurator if it was started."""
        if self._peer is not None:
            self._peer.__exit__(kind, error, trace)

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """Return the answer to a request.

        Raises:
            RefusedError: AIConfigurator could not answer, now or when it was asked first.
            AIConfiguratorError: it is not at hand, or its process ended.
        """
        key = json.dumps(request, sort_keys=True)
        if key not in self._known:
            self._known[key] = self._fresh(request)
        entry = self._known[key]
        if "error" in entry:
            raise RefusedError(entry["error"])
        answer: dict[str, Any] = entry["answer"]
        return answer

    def _fresh(self, request: dict[str, Any]) -> dict[str, Any]:
        if self._peer is None:
            peer = AIConfigurator(interpreter())
            self._peer = peer.__enter__()
        self.asked += 1
        try:
            entry: dict[str, Any] = {"request": request, "answer": self._peer.ask(request)}
        except RefusedError as error:
            entry = {"request": request, "error": str(error)}
        self._file.parent.mkdir(parents=True, exist_ok=True)
        with self._file.open("a", encoding="utf-8") as file:
            file.write(json.dumps(entry) + "\n")
        return entry
