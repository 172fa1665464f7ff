"""The worker's HTTP API: what vLLM's server answers, as far as routers, clients and monitoring use it."""

import logging
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping
from importlib import metadata
from typing import Any

import orjson
from aiohttp import web

from swingpool.worker import protocol, render
from swingpool.worker.answers import Answer, Counted, Streamed
from swingpool.worker.driver import Driver
from swingpool.worker.faults import FaultError, Faults
from swingpool.worker.metrics import Metrics
from swingpool.worker.options import Options
from swingpool.worker.protocol import Generation, RequestError
from swingpool.worker.render import Envelope
from swingpool.worker.sleeping import Sleeping
from swingpool.worker.transfer import Remote, remote_of
from swingpool_control.engine.work import Request

LARGEST_BODY_BYTES = 64 * 1024 * 1024
JSON = "application/json"
SIMULATED_VERSION = "0.32.0"
"""The vLLM whose behaviour this follows; what /version says, with a suffix that tells that it is none."""

log = logging.getLogger(__name__)


class Api:
    """Handlers of one worker.

    Args:
        options: what the worker was told.
        driver: where requests go.
        metrics: what /metrics tells.
        faults: what /faults changes.
        engine_id: this process, among all that ever were a worker.
        strike: carries out a crash or a hang.
    """

    def __init__(
        self,
        options: Options,
        driver: Driver,
        metrics: Metrics,
        faults: Faults,
        *,
        engine_id: str,
        strike: Callable[[str, float | None], None],
    ) -> None:
        self._options = options
        self._driver = driver
        self._metrics = metrics
        self._faults = faults
        self._engine_id = engine_id
        self._strike = strike
        self._started_unix_s = int(time.time())
        self.ready = False
        """Whether the model is loaded."""
        self.draining = False
        """Whether new requests are refused, for it is to end."""
        self.in_flight = 0
        """HTTP requests that are not answered yet."""

    def app(self) -> web.Application:
        """Return the application."""
        app = web.Application(client_max_size=LARGEST_BODY_BYTES, middlewares=[self._middleware])
        app.router.add_get("/health", self._health)
        app.router.add_get("/ping", self._health)
        app.router.add_get("/version", self._version)
        app.router.add_get("/metrics", self._get_metrics)
        app.router.add_get("/v1/models", self._models)
        app.router.add_post("/v1/completions", self._completions)
        app.router.add_post("/v1/chat/completions", self._chat_completions)
        app.router.add_post("/tokenize", self._tokenize)
        app.router.add_get("/faults", self._list_faults)
        app.router.add_post("/faults", self._set_fault)
        app.router.add_delete("/faults", self._clear_faults)
        if self._options.development:
            Sleeping(self._driver, wake_s=self._options.wake_delay_s).attach(app)
        return app

    @web.middleware
    async def _middleware(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        """Word errors as vLLM does, and count what is in flight."""
        self.in_flight += 1
        try:
            response = await handler(request)
        except RequestError as error:
            response = web.Response(status=error.status, body=error.body(), content_type=JSON)
        except web.HTTPException as error:
            response = _json({"detail": error.reason}, status=error.status)
        finally:
            self.in_flight -= 1
        return response

    # About itself

    async def _health(self, request: web.Request) -> web.Response:
        del request
        return web.Response(status=200 if self.ready else 503)

    async def _version(self, request: web.Request) -> web.Response:
        del request
        version = f"{SIMULATED_VERSION}+simulated.{metadata.version('swingpool')}"
        return _json({"version": version})

    async def _get_metrics(self, request: web.Request) -> web.Response:
        del request
        return web.Response(
            body=self._metrics.text(), headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"}
        )

    async def _models(self, request: web.Request) -> web.Response:
        del request
        cards: list[dict[str, object]] = [
            {
                "id": name,
                "object": "model",
                "created": self._started_unix_s,
                "owned_by": "vllm",
                "root": self._options.model_source,
                "parent": None,
                "max_model_len": self._options.max_model_len,
                "permission": [],
            }
            for name in self._options.served_names
        ]
        return _json({"object": "list", "data": cards})

    async def _tokenize(self, request: web.Request) -> web.Response:
        data = protocol.decode(await request.read(), request.content_type)
        tokens = protocol.tokens_of(data, self._options)
        return _json(
            {
                "count": len(tokens),
                "max_model_len": self._options.max_model_len,
                "tokens": tokens,
                "token_strs": None,
            }
        )

    # Faults

    async def _list_faults(self, request: web.Request) -> web.Response:
        del request
        return _json({"faults": self._faults.listing(now_s=self._driver.now_s)})

    async def _set_fault(self, request: web.Request) -> web.Response:
        try:
            fault = self._faults.parse(protocol.decode(await request.read(), JSON))
        except FaultError as error:
            raise protocol.bad_request(str(error)) from error
        if fault.kind in ("crash", "hang"):
            self._strike(fault.kind, fault.duration_s)
        else:
            self._faults.set(fault, now_s=self._driver.now_s)
        log.warning("fault: %s", fault)
        return _json({"faults": [fault.model_dump()]})

    async def _clear_faults(self, request: web.Request) -> web.Response:
        self._faults.clear()
        return await self._list_faults(request)

    # Generation

    async def _completions(self, request: web.Request) -> web.StreamResponse:
        return await self._generate(request, chat=False)

    async def _chat_completions(self, request: web.Request) -> web.StreamResponse:
        return await self._generate(request, chat=True)

    async def _generate(self, request: web.Request, *, chat: bool) -> web.StreamResponse:
        data = protocol.decode(await request.read(), request.content_type)
        try:
            self._check_admission()
            generation = protocol.parse(data, chat=chat, options=self._options)
        except RequestError:
            self._give_up(data.get("kv_transfer_params"))
            raise
        self._metrics.asked(max_tokens=generation.max_tokens, answers=generation.answers)
        identity = request.headers.get("X-Request-Id") or uuid.uuid4().hex
        envelope = Envelope(
            id=f"{'chatcmpl' if chat else 'cmpl'}-{identity}", created_unix_s=int(time.time()), generation=generation
        )
        if generation.stream:
            return await self._stream(request, envelope)
        return await self._whole(envelope)

    def _check_admission(self) -> None:
        status = self._faults.error_status(now_s=self._driver.now_s)
        if status is not None:
            raise RequestError(status, "InternalServerError", "a fault was asked for")
        if self.draining:
            raise RequestError(500, "InternalServerError", "the engine is shutting down and takes no new requests")
        if not self.ready:
            raise RequestError(503, "ServiceUnavailableError", "the model is being loaded")

    def _give_up(self, params: Mapping[str, Any] | None) -> None:
        """Let another worker free what it keeps for a request that never reaches the engine here."""
        remote = remote_of(params) if self._options.kv_transfer else None
        if remote is not None:
            self._driver.give_up(remote)

    async def _whole(self, envelope: Envelope) -> web.Response:
        answer = Answer(envelope)
        jobs = self._requests(envelope)
        submitted = [
            self._driver.submit(request, Counted(answer), finish=finish, remote=remote)
            for request, finish, remote in jobs
        ]
        try:
            whole = await answer.done
        finally:
            for job in submitted:
                self._driver.abort(job)
        if not whole:
            raise protocol.internal_error()
        first = jobs[0][0]
        return web.Response(
            body=render.whole(envelope, self._kept(first) if first.remote_decode else None), content_type=JSON
        )

    async def _stream(self, request: web.Request, envelope: Envelope) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
        response.enable_chunked_encoding()
        try:
            await response.prepare(request)
            transport = request.transport
        except BaseException:
            self._give_up(envelope.generation.kv_transfer_params)
            raise
        if transport is None:  # gone already
            self._give_up(envelope.generation.kv_transfer_params)
            return response
        answer = Answer(envelope)
        submitted = [
            self._driver.submit(each, Streamed(answer, index, transport), finish=finish, remote=remote)
            for index, (each, finish, remote) in enumerate(self._requests(envelope))
        ]
        try:
            whole = await answer.done
        finally:
            for job in submitted:
                self._driver.abort(job)
        if not whole:
            await response.write(b"data: " + protocol.internal_error().body() + b"\n\n" + render.DONE)
        await response.write_eof()
        return response

    def _requests(self, envelope: Envelope) -> list[tuple[Request, str, Remote | None]]:
        """Return an answer's requests to the engine. KV cache is exchanged for the first only, as in vLLM."""
        generation: Generation = envelope.generation
        params = generation.kv_transfer_params if self._options.kv_transfer else None
        unique = uuid.uuid4().hex[:8]
        requests = []
        for index, choice in enumerate(generation.choices):
            remote = remote_of(params) if not index else None
            if remote is None and not index and params and params.get("do_remote_prefill"):
                log.warning("request %s: kv_transfer_params name no KV cache to pull; computed here", envelope.id)
            request = Request(
                id=f"{envelope.id}-{index}-{unique}",
                prompt_tokens=choice.prompt.tokens,
                output_tokens=choice.output_tokens,
                block_hashes=choice.prompt.block_hashes,
                remote_prefill=remote is not None,
                remote_decode=bool(params and params.get("do_remote_decode")) and not index and self._keeps,
                priority=generation.priority,
            )
            requests.append((request, choice.finish, remote))
        return requests

    @property
    def _keeps(self) -> bool:
        return not self._faults.keeps_nothing(now_s=self._driver.now_s)

    def _kept(self, request: Request) -> dict[str, object] | None:
        """Return what another worker needs to pull a request's KV cache."""
        lease = self._driver.lease(request.id)
        transfer = self._options.kv_transfer
        if lease is None or transfer is None:
            return None
        return {
            "do_remote_prefill": True,
            "do_remote_decode": False,
            "remote_block_ids": [list(lease.blocks)],
            "remote_engine_id": self._engine_id,
            "remote_request_id": request.id,
            "remote_host": transfer.side_channel_host,
            "remote_port": transfer.side_channel_port,
            "tp_size": self._options.tensor_parallel_size,
            "dcp_size": 1,
            "pp_size": 1,
            "remote_num_tokens": lease.tokens,
            "remote_blocks_expiry_time": None,
            "transfer_mode": "pull",
        }


def _json(body: object, *, status: int = 200) -> web.Response:
    return web.Response(status=status, body=orjson.dumps(body), content_type=JSON)
