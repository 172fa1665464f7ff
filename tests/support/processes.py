"""What tests need to start the project's own programs as processes."""

import socket
import sys
from pathlib import Path


def swingpool(*arguments: str) -> list[str]:
    """Return the command line of `swingpool` as it is installed beside this Python."""
    return [str(Path(sys.executable).with_name("swingpool")), *arguments]


def free_port() -> int:
    """Return a loopback port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
