"""Probes of the containers, and the times around a container's end."""

from swingpool_control.resources.metadata import Manifest


def http_probe(*, path: str, port: str, period_s: int, timeout_s: int, failures: int) -> Manifest:
    """Return an HTTP probe.

    Args:
        path: what is asked for.
        port: name of the container's port.
        period_s: seconds from one probe to the next.
        timeout_s: seconds that one may take.
        failures: failed probes in a row that count.
    """
    return {
        "httpGet": {"path": path, "port": port, "scheme": "HTTP"},
        "periodSeconds": period_s,
        "timeoutSeconds": timeout_s,
        "failureThreshold": failures,
    }


def sleep_before_stop(seconds: int) -> Manifest:
    """Return a lifecycle that waits between a pod's deletion and SIGTERM, while those who send requests take note."""
    return {"preStop": {"sleep": {"seconds": seconds}}}
