"""What is tested here against Envoy is what the image runs: compiled. Where it is not, the picker says so itself."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import pytest

from e2e.ports import free_port
from swingpool.compiled import core
from tests.support.processes import swingpool
from tests.support.router_client import completion
from tests.support.router_stand import Stand
from tests.support.waiting import until_async
from tools import compiled

SERIES = "swingpool_router_compiled"


async def test_what_requests_go_through_is_compiled(stand: Stand, session: aiohttp.ClientSession) -> None:
    assert compiled.folder(core.PICKER).is_dir(), "run `python -m tools.compiled picker` first, as `make test` does"
    async with session.post(f"{stand.url}/v1/completions", json=completion()) as response:
        assert response.status == 200
    assert await stand.metric(session, SERIES) == 1


@pytest.fixture
def port(tmp_path: Path) -> Iterator[int]:
    """Where a picker tells of itself for which nothing was compiled."""
    port = free_port()
    (tmp_path / "workers.json").write_text("[]")
    command = [
        *swingpool("picker"),
        *("--workers-file", str(tmp_path / "workers.json"), "--eds-file", str(tmp_path / "eds.json")),
        *("--grpc-socket", str(tmp_path / "picker.sock"), "--http-host", "127.0.0.1", "--http-port", str(port)),
    ]
    with (tmp_path / "log").open("wb") as output:
        environment = os.environ | {core.CACHE: str(tmp_path)}
        picker = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=environment)
    yield port
    picker.kill()
    picker.wait()


async def test_a_picker_that_is_not_compiled_says_so(port: int, tmp_path: Path, session: aiohttp.ClientSession) -> None:
    async def serves() -> bool:
        async with session.get(f"http://127.0.0.1:{port}/readyz") as response:
            return response.status == 200

    await until_async("the picker serves", serves)
    async with session.get(f"http://127.0.0.1:{port}/metrics") as response:
        assert f"\n{SERIES} 0.0\n" in await response.text()
    log = (tmp_path / "log").read_text()
    assert "requests go through plain Python" in log
    assert f"nothing that was compiled from these sources lies in {tmp_path}" in log
