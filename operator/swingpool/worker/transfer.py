"""The side channel by which a worker pulls KV cache from another: a small stand-in for NIXL's handshake and reads.

One TCP connection per pull, one JSON object per line. The puller asks; the holder checks that it is the engine that is
meant, that the layouts are compatible and that the lease still stands, and answers; the puller lets the transfer's time
pass and says `done`, whereupon the holder frees the blocks. A holder whose lease ended in between says so, and the pull
has failed: the real engine would have read blocks that hold something else by then.
"""

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

import orjson

CONNECT_TIMEOUT_S = 5.0
ANSWER_TIMEOUT_S = 5.0
_FIELDS = ("remote_engine_id", "remote_request_id", "remote_host", "remote_port")


class TransferError(Exception):
    """A pull that failed, and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Remote:
    """Where a request's KV cache waits, as `kv_transfer_params` name it."""

    engine_id: str
    request_id: str
    host: str
    port: int
    block_ids: tuple[int, ...]


def remote_of(params: Mapping[str, Any] | None) -> Remote | None:
    """Return where a request's KV cache waits; None if it names no place, or not a whole one."""
    if (
        not isinstance(params, Mapping)
        or not params.get("do_remote_prefill")
        or any(params.get(name) is None for name in _FIELDS)
    ):
        return None
    blocks = params.get("remote_block_ids")
    if not isinstance(blocks, list) or not blocks:
        return None
    groups = blocks if isinstance(blocks[0], list) else [blocks]
    try:
        return Remote(
            engine_id=str(params["remote_engine_id"]),
            request_id=str(params["remote_request_id"]),
            host=str(params["remote_host"]),
            port=int(params["remote_port"]),
            block_ids=tuple(int(block) for block in groups[0]),
        )
    except (TypeError, ValueError):
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """What a side channel serves: the engine's leases."""

    engine_id: str
    compatibility: str
    """Equal on workers that can exchange KV cache."""
    blocks: Callable[[str], tuple[int, ...] | None]
    """Blocks kept for a request, or None if there is no lease (any more)."""
    renew: Callable[[str], bool]
    release: Callable[[str], bool]


class SideChannel:
    """Serves a holder's leases to other workers, and pulls from theirs."""

    def __init__(self, holder: Holder, *, host: str, port: int) -> None:
        self.host = host
        self.port = port
        self._holder = holder
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        """Listen.

        Raises:
            OSError: the address cannot be had.
        """
        self._server = await asyncio.start_server(self._serve, self.host, self.port)

    def stop(self) -> None:
        """Listen no more."""
        if self._server is not None:
            self._server.close()

    async def pull(self, remote: Remote, duration_s: float) -> None:
        """Pull a request's KV cache; the holder frees it.

        Raises:
            TransferError: it cannot be had.
        """
        async with _connection(remote) as (reader, writer):
            await _ask(reader, writer, {**self._question("pull", remote), "block_ids": remote.block_ids})
            await asyncio.sleep(duration_s)
            await _ask(reader, writer, self._question("done", remote))

    async def renew(self, remote: Remote) -> None:
        """Ask the holder to keep a request's blocks for longer.

        Raises:
            TransferError: they are not there any more.
        """
        async with _connection(remote) as (reader, writer):
            await _ask(reader, writer, self._question("renew", remote))

    async def give_up(self, remote: Remote) -> None:
        """Tell the holder that nobody will pull a request's blocks; if it cannot be told, the lease ends by itself."""
        with contextlib.suppress(TransferError):
            async with _connection(remote) as (reader, writer):
                await _ask(reader, writer, self._question("done", remote))

    def _question(self, kind: str, remote: Remote) -> dict[str, Any]:
        return {
            "ask": kind,
            "engine_id": remote.engine_id,
            "request_id": remote.request_id,
            "compatibility": self._holder.compatibility,
        }

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                error = self._answer(line)
                writer.write(orjson.dumps({"error": error}) + b"\n")
                await writer.drain()
        except (ConnectionError, ValueError):  # gone, or not a line
            pass
        finally:
            writer.close()

    def _answer(self, line: bytes) -> str:
        """Do what was asked; return what is wrong, or nothing."""
        try:
            question = cast("dict[str, Any]", orjson.loads(line))
            kind, request_id = question["ask"], question["request_id"]
            engine_id, compatibility = question["engine_id"], question["compatibility"]
        except (ValueError, KeyError, TypeError):
            return "not a question of this protocol"
        holder = self._holder
        if engine_id != holder.engine_id:
            return f"this is engine {holder.engine_id}, not {engine_id}: it has restarted, or the address is another's"
        if compatibility != holder.compatibility:
            return f"KV layouts differ: {holder.compatibility} here, {compatibility} there"
        if kind == "renew":
            return "" if holder.renew(request_id) else _gone(request_id)
        if kind == "done":
            return "" if holder.release(request_id) else _gone(request_id)
        if kind == "pull":
            return self._check_blocks(request_id, question.get("block_ids"))
        return f"unknown question {kind!r}"

    def _check_blocks(self, request_id: str, asked: object) -> str:
        blocks = self._holder.blocks(request_id)
        if blocks is None:
            return _gone(request_id)
        if asked != list(blocks):
            return f"request {request_id} has other blocks"
        return ""


def _gone(request_id: str) -> str:
    return f"no blocks are kept for request {request_id}: pulled already, or the lease has ended"


@contextlib.asynccontextmanager
async def _connection(remote: Remote) -> Any:
    try:
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            reader, writer = await asyncio.open_connection(remote.host, remote.port)
    except (OSError, TimeoutError) as error:
        raise TransferError(f"{remote.host}:{remote.port} cannot be reached: {error or 'no answer'}") from error
    try:
        yield reader, writer
    finally:
        writer.close()


async def _ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, question: dict[str, Any]) -> None:
    try:
        writer.write(orjson.dumps(question) + b"\n")
        async with asyncio.timeout(ANSWER_TIMEOUT_S):
            error: str = orjson.loads(await reader.readline())["error"]
    except (OSError, TimeoutError, ValueError, KeyError, TypeError) as cause:
        raise TransferError(f"no answer from the other worker: {cause or 'none in time'}") from cause
    if error:
        raise TransferError(error)
