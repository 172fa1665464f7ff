"""Ports for whatever tests start: several ask for theirs before any of them listens."""

import socket

_given: set[int] = set()


def free_port() -> int:
    """Return a loopback port that nobody listens on now, and that this process was not given before."""
    while True:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = int(probe.getsockname()[1])
        if port not in _given:
            _given.add(port)
            return port
