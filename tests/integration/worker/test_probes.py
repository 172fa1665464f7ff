"""The probes of vLLM's container, run as the kubelet runs them, against a worker that works, hangs or does nothing."""

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest

from swingpool_control.vllm.probes import ALIVE, STALLED_S, alive_command, started_command
from tests.support.workers import WorkerProcess


def probe(command: Sequence[str]) -> int:
    """Run a probe's command with this Python, and return its exit code."""
    return subprocess.run([sys.executable, *command[1:]], capture_output=True, check=False, timeout=60).returncode


def test_a_worker_that_generates_has_started_and_lives(tmp_path: Path) -> None:
    with WorkerProcess() as worker:
        assert probe(started_command(worker.url)) == 0
        for _ in range(2):
            assert probe(alive_command(worker.url, str(tmp_path / "seen"))) == 0
        worker.terminate()
        worker.end()
        assert probe(started_command(worker.url)) != 0


class _Page(BaseHTTPRequestHandler):
    running, tokens = 3, 100

    def do_GET(self) -> None:
        body = (
            f'vllm:num_requests_running{{engine="0"}} {self.running}\nvllm:num_requests_waiting{{engine="0"}} 0.0\n'
            f'vllm:generation_tokens_total{{engine="0"}} {self.tokens}\n'
            f'vllm:generation_tokens_created{{engine="0"}} 1e9\n'
        ).encode()
        self.send_response(200)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: object) -> None:
        """Say nothing."""


@pytest.mark.parametrize(
    ("running", "tokens", "seen_s_ago", "code"),
    [(3, 100, STALLED_S + 60, 1), (3, 101, STALLED_S + 60, 0), (0, 100, STALLED_S + 60, 0), (3, 100, 5, 0)],
    ids=["hangs", "moves", "idle", "not for long"],
)
def test_only_a_worker_whose_requests_have_not_moved_for_long_is_restarted(
    tmp_path: Path, running: int, tokens: int, seen_s_ago: int, code: int
) -> None:
    seen = tmp_path / "seen"
    seen.write_text(json.dumps([100.0, time.time() - seen_s_ago]))
    handler = type("Page", (_Page,), {"running": running, "tokens": tokens})
    server = HTTPServer(("127.0.0.1", 0), handler)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        assert probe(alive_command(f"http://127.0.0.1:{server.server_port}", str(seen))) == code
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
    assert "generation_tokens_total" in ALIVE
