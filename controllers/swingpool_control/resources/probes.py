"""Probes of the containers, and the times around a container's end."""

from swingpool_control.resources.metadata import Manifest


def http_probe(*, path: str, port: str, period_s: int, timeout_s: int, failures: int, scheme: str = "HTTP") -> Manifest:
    """Return an HTTP probe.

    Args:
        path: what is asked for.
        port: name of the container's port.
        period_s: seconds from one probe to the next.
        timeout_s: seconds that one may take.
        failures: failed probes in a row that count.
        scheme: HTTP or HTTPS; no certificate is checked.
    """
    return {
        "httpGet": {"path": path, "port": port, "scheme": scheme},
        "periodSeconds": period_s,
        "timeoutSeconds": timeout_s,
        "failureThreshold": failures,
    }


def exec_probe(command: list[str], *, period_s: int, timeout_s: int, failures: int) -> Manifest:
    """Return a probe that runs a command in the container; see `http_probe` for the rest."""
    return {
        "exec": {"command": command},
        "periodSeconds": period_s,
        "timeoutSeconds": timeout_s,
        "failureThreshold": failures,
    }


def liveness(*, path: str, port: str, failures: int, stop_s: int, scheme: str = "HTTP") -> Manifest:
    """Return a liveness probe: asked every 10 s, with 5 s to answer.

    Args:
        path: what is asked for.
        port: name of the container's port.
        failures: failed probes in a row after which the container is restarted.
        stop_s: seconds that it has to end then. The pod's own grace period is made for requests that come to their end;
            in a container that does not answer they never will.
        scheme: HTTP or HTTPS.
    """
    probe = http_probe(path=path, port=port, period_s=10, timeout_s=5, failures=failures, scheme=scheme)
    return probe | {"terminationGracePeriodSeconds": stop_s}


def sleep_before_stop(seconds: int) -> Manifest:
    """Return a lifecycle that waits between a pod's deletion and SIGTERM, while those who send requests take note."""
    return {"preStop": {"sleep": {"seconds": seconds}}}


def tcp_probe(*, port: str, period_s: int, timeout_s: int, failures: int) -> Manifest:
    """Return a probe that connects: all that the kubelet can do where a server wants certificates of its clients."""
    return {
        "tcpSocket": {"port": port},
        "periodSeconds": period_s,
        "timeoutSeconds": timeout_s,
        "failureThreshold": failures,
    }
