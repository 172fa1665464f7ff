"""How an engine is told to sleep and to wake.

`POST /sleep?level=1` moves the weights to the host's memory and drops the KV cache; with `mode=wait` what runs comes to
its end first (versions that do not know the word do not look at it). `POST /wake_up` undoes it. Both
answer when it is done, both do nothing the second time, and both are there in development mode only
(`VLLM_SERVER_DEV_MODE`), which opens more than these: where pools have a reserve, let none but the manager, the router
and other workers reach the workers' ports.

From the source of vLLM 0.32 (`entrypoints/serve/dev/sleep`, `v1/engine/core.py`, `v1/worker`): a request that comes in
its sleep waits for the end of it. Builds for CPUs take both calls and free nothing: the engine only pauses.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

ENABLE = "--enable-sleep-mode"
DEVELOPMENT = {"VLLM_SERVER_DEV_MODE": "1"}
LEVEL = 1
"""Weights to the host's memory: they need not be read again. Level 2 would drop them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One request."""

    path: str
    query: Mapping[str, str]


def request(call: Literal["sleep", "wake"]) -> Call:
    """Return the request, a POST, that makes an engine sleep or wake."""
    if call == "sleep":
        return Call(path="/sleep", query={"level": str(LEVEL), "mode": "wait"})
    return Call(path="/wake_up", query={})
