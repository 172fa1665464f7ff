"""What tests need to start the project's own programs as processes."""

import json
import os
import sys
from pathlib import Path


def swingpool(*arguments: str) -> list[str]:
    """Return the command line of `swingpool` as it is installed beside this Python."""
    return [str(Path(sys.executable).with_name("swingpool")), *arguments]


def simulated_worker(
    *arguments: str,
    model: str,
    port: int,
    side_port: int,
    policy: str = "fail",
    lease_s: float = 30.0,
    speedup: float = 4,
) -> tuple[list[str], dict[str, str]]:
    """Return command line and environment of a simulated worker on loopback that exchanges KV cache.

    Args:
        arguments: further arguments.
        model: what clients call its model.
        port: of its HTTP API.
        side_port: where other workers ask for KV cache.
        policy: kv_load_failure_policy.
        lease_s: kv_lease_duration.
        speedup: how much faster than the demo profile.
    """
    transfer = {
        "kv_connector": "NixlConnector",
        "kv_role": "kv_both",
        "kv_load_failure_policy": policy,
        "kv_connector_extra_config": {"kv_lease_duration": lease_s},
    }
    command = swingpool(
        *("worker", "--model", model, "--host", "127.0.0.1", "--port", str(port)),
        *("--profile", "demo", "--speedup", str(speedup), "--kv-transfer-config", json.dumps(transfer), *arguments),
    )
    environment = os.environ | {
        "VLLM_NIXL_SIDE_CHANNEL_HOST": "127.0.0.1",
        "VLLM_NIXL_SIDE_CHANNEL_PORT": str(side_port),
        "VLLM_SERVER_DEV_MODE": "1",  # so that it can be put to sleep
    }
    return command, environment
