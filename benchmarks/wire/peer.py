"""vllm-router, the peer: installed once, pinned, into an environment of its own under the user's cache."""

import fcntl
import os
import subprocess
import sys
from pathlib import Path

VERSION = "0.1.17"


def installed() -> Path:
    """Return the vllm-router program, installed from the package index if it is not there yet.

    Raises:
        subprocess.CalledProcessError: it cannot be installed.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "swingpool"
    folder = cache / "vllm-router" / VERSION
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / "bin" / "vllm-router"
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / ".installed").exists():
            subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
            pip = [str(folder / "bin" / "pip"), "install", "--quiet", "--disable-pip-version-check"]
            subprocess.run([*pip, f"vllm-router=={VERSION}"], check=True)
            (folder / ".installed").touch()
    return program


def command(port: int, metrics_port: int, prefill: list[int], decode: list[int]) -> list[str]:
    """Return the command line that routes prefill and decode legs as ours does.

    Args:
        port: where clients come.
        metrics_port: of its Prometheus endpoint.
        prefill: ports of the prefill workers.
        decode: ports of the decode workers.
    """
    return [
        *(str(installed()), "--host", "127.0.0.1", "--port", str(port)),
        *("--prometheus-host", "127.0.0.1", "--prometheus-port", str(metrics_port)),
        "--vllm-pd-disaggregation",
        *(part for one in prefill for part in ("--prefill", f"http://127.0.0.1:{one}")),
        *(part for one in decode for part in ("--decode", f"http://127.0.0.1:{one}")),
        *("--policy", "round_robin", "--kv-connector", "nixl", "--log-level", "warning"),
        *("--max-concurrent-requests", "4096", "--queue-size", "4096"),
    ]
