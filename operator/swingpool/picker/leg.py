"""The prefill leg: one request to one prefill worker, and what came of it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from swingpool.picker.wire import BrokenError, ConnectError, Errand, HttpPool, Response, Tls
from swingpool.picker.worker import Worker
from swingpool_control.placement.openai import KV_TRANSFER

TIMEOUT_S = 590.0
"""Just under what Envoy waits for the picker."""


class Computed:
    """The prompt is computed.

    Args:
        kv_transfer_params: how to fetch its KV cache; None if the worker keeps none.
        prompt_tokens: the prompt's exact length; 0 if the worker did not say.
    """

    __slots__ = ("kv_transfer_params", "prompt_tokens")

    def __init__(self, *, kv_transfer_params: dict[str, Any] | None, prompt_tokens: int) -> None:
        self.kv_transfer_params = kv_transfer_params
        self.prompt_tokens = prompt_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """The worker refuses the leg. That may lie in the leg alone: a worker that gets the whole request says what is."""

    status: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """The worker could not do it; another may."""

    why: str
    unreachable: bool = False
    """Whether no connection could be made."""


LegResult = Computed | Refused | Failed
Told = Callable[[dict[str, Any]], None]
"""Told how to fetch a KV cache that was computed for somebody who had left already."""


class PrefillClient:
    """Runs prefill legs over kept connections.

    Args:
        pool: the connections.
        tls: how workers are spoken to that speak TLS.
    """

    def __init__(self, pool: HttpPool, tls: Tls | None = None) -> None:
        self._pool = pool
        self._tls = tls

    async def run(
        self,
        worker: Worker,
        path: str,
        body: bytes,
        *,
        headers: Mapping[str, str],
        late: Told | None = None,
        soon: Callable[[], bool] = lambda: False,
    ) -> LegResult:
        """Send a leg; cancelling it closes the connection, on which the worker stops computing, as ending it does.

        Args:
            worker: where to.
            path: path and query, as the client sent them.
            body: the leg's body.
            headers: the leg's headers.
            late: told what comes of the leg if it was cancelled when the worker had just done it.
            soon: tells whether the worker should have done it soon: then it is let finish.
        """

        def answered(response: Response) -> None:
            result = _result(response)
            if late is not None and isinstance(result, Computed) and result.kv_transfer_params is not None:
                late(result.kv_transfer_params)

        errand = Errand(answered, soon)
        worker.legs.add(errand)
        tls = self._tls if worker.member.tls else None
        try:
            return _result(await self._pool.post(worker.member.address, path, body, headers, errand=errand, tls=tls))
        except ConnectError as unreachable:
            return Failed(why=str(unreachable), unreachable=True)
        except BrokenError as broken:
            return Failed(why=str(broken))
        finally:
            worker.legs.discard(errand)


def end_overdue(worker: Worker, *, now_s: float) -> None:
    """End the legs that have taken too long; call it about every second, since to set each a timer costs more."""
    worker.abandon_legs(f"no answer within {TIMEOUT_S:g} s", begun_before_s=now_s - TIMEOUT_S)


def _result(response: Response) -> LegResult:
    status, content = response.status, response.body
    if status >= 500:
        return Failed(why=f"status {status}")
    if status >= 400:
        return Refused(status=status)
    try:
        answer = orjson.loads(content)
    except orjson.JSONDecodeError:
        return Failed(why="an answer that is not JSON")
    if not isinstance(answer, dict):
        return Failed(why="an answer that is no object")
    params = answer.get(KV_TRANSFER)
    usage = answer.get("usage")
    tokens = usage.get("prompt_tokens") if isinstance(usage, dict) else 0
    return Computed(
        kv_transfer_params=params if isinstance(params, dict) else None,
        prompt_tokens=tokens if isinstance(tokens, int) else 0,
    )
