"""A Job within the cluster measures a worker of vLLM, without rights of its own."""

import os
import subprocess
import sys
import time
from pathlib import Path

from e2e.system.install import System
from e2e.vllm.finding import Finding
from swingpool_control.engine.profile import parse

LIMIT_S = 240
NAME = "measured"


def check(system: System, *, namespace: str, pod: str, directory: Path) -> list[Finding]:
    """Measure a few points of a pod that nobody uses, and look at the profile that comes back."""
    output = directory / "job-profile.json"
    command = [
        *(
            str(Path(sys.executable).with_name("swingpool")),
            "profile",
            "measure",
            f"pod/{pod}",
            "-n",
            namespace,
            "--accelerator",
            "CPU",
            "-o",
            str(output),
        ),
        *("--kv-bytes-per-token", "2048", "--max-batched-tokens", "2048", "--max-sequences", "2"),
        *("--max-prompt-tokens", "200", "--tolerance", "0.5", "--least-repeats", "2", "--force"),
        *("--job", "--image", system.image, "--config-map", NAME),
    ]
    environment = os.environ | {"KUBECONFIG": str(system.cluster.kubeconfig)}
    begin_s = time.monotonic()
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=LIMIT_S)
    took_s = time.monotonic() - begin_s
    holds = done.returncode == 0
    if holds:
        found = parse(output.read_bytes(), origin=str(output))
        stored = system.cluster.kubectl(
            "-n", namespace, "get", "configmap", NAME, "-o", "jsonpath={.data.profile\\.json}"
        )
        holds = parse(stored.stdout, origin=NAME) == found
    return [
        Finding(
            claim="a Job in the cluster measures a worker of vLLM, and the profile comes back by its log",
            holds=holds,
            figures={"seconds": took_s},
            notes=() if holds else tuple((done.stdout + done.stderr).splitlines()[-10:]),
        )
    ]
