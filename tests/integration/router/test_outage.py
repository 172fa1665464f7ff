"""While the picker is away, Envoy itself keeps parameters of transfers from workers, and all else goes on."""

import io
import json
from collections.abc import AsyncIterator

import aiohttp
import pytest

from tests.support.recorder import Recorder, recording
from tests.support.router_client import chat, completion
from tests.support.router_stand import Stand
from tests.support.waiting import until_async

STOLEN = {"do_remote_prefill": True, "remote_host": "127.0.0.1", "remote_port": 9}
TWICE = '{"prompt": "x", "vllm_xargs": {}, "vllm_xargs": {"kv_transfer_params": "x"}}'


@pytest.fixture
async def orphans(stand: Stand, session: aiohttp.ClientSession) -> AsyncIterator[Recorder]:
    """Two workers that Envoy knows, and no picker."""
    async with recording(stand, session) as recorder:
        assert stand.picker is not None
        stand.picker.kill()
        stand.picker.wait()

        async def known() -> bool:
            async with session.get(f"{stand.url}/v1/models") as response:
                return response.status == 200

        await until_async("Envoy goes on by itself", known)
        recorder.forget()
        yield recorder
    stand.start_picker()


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(json.dumps(completion(kv_transfer_params=STOLEN)).encode(), id="named"),
        pytest.param(json.dumps(chat(vllm_xargs={"kv_transfer_params": "x"})).encode(), id="within"),
        pytest.param(TWICE.encode(), id="twice"),
        pytest.param(b'{"prompt": "x", "\\u006bv_transfer_params": {}}', id="escaped"),
        pytest.param(json.dumps(completion(kv_transfer_params=STOLEN)).encode("utf-16"), id="utf-16"),
        pytest.param(b'{"prompt": NaN, "kv_transfer_params": {}}', id="nan"),
    ],
)
@pytest.mark.parametrize("path", ["/v1/completions", "/v1/responses"])
async def test_what_may_name_a_host_is_refused(
    stand: Stand, session: aiohttp.ClientSession, orphans: Recorder, raw: bytes, path: str
) -> None:
    for content_type in ("application/json", "application/json; charset=utf-8", "text/plain"):
        headers = {"content-type": content_type}
        async with session.post(stand.url + path, data=raw, headers=headers) as response:
            assert response.status == 403, (content_type, await response.read())
            assert (await response.json())["error"]["code"] == 403
    assert not [*orphans.legs, *orphans.served]


async def test_what_names_none_is_served(stand: Stand, session: aiohttp.ClientSession, orphans: Recorder) -> None:
    """Extra arguments for the engine are not, harmless ones either: Envoy cannot look into them well enough."""
    bodies = [completion(), chat(stream=True), completion(vllm_xargs=None), completion("é" * 50_000)]
    for body in bodies:
        data = io.BytesIO(json.dumps(body).encode())
        path = "/v1/chat/completions" if "messages" in body else "/v1/completions"
        headers = {"content-type": "application/json"}
        async with session.post(stand.url + path, data=data, headers=headers) as response:
            assert response.status == 200, await response.read()
    async with session.post(f"{stand.url}/v1/audio/transcriptions", data={"file": io.BytesIO(b"\x00\xff")}) as response:
        assert response.status != 403
