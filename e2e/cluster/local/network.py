"""The network namespace that holds the whole cluster: its addresses, routes and packet filters never touch the host."""

import ctypes
import os
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from e2e.cluster.commands import run
from e2e.cluster.controlplane import SERVICE_RANGE
from e2e.cluster.interface import ClusterError
from e2e.cluster.local.layout import CONTROL_PLANE_ADDRESS, NETWORK_NAMESPACE

HANDLE = Path("/run/netns") / NETWORK_NAMESPACE
PREFIX = ("nsenter", f"--net={HANDLE}", "--")
_CLONE_NEWNET = 0x40000000


def create(addresses: Iterable[str]) -> None:
    """Create the namespace with the given addresses on its loopback device. Raises ClusterError if it is refused."""
    run(["ip", "netns", "add", NETWORK_NAMESPACE])
    run([*PREFIX, "ip", "link", "set", "lo", "up"])
    run([*PREFIX, "sysctl", "-qw", "net.ipv4.ip_forward=1"])
    for address in addresses:
        run([*PREFIX, "ip", "address", "add", f"{address}/32", "dev", "lo"])
    # Without a route a connection to a ClusterIP fails before kube-proxy's rules see it.
    run([*PREFIX, "ip", "route", "add", SERVICE_RANGE, "dev", "lo", "src", CONTROL_PLANE_ADDRESS])


def remove() -> None:
    """Remove the namespace and with it every device, address, route and filter in it."""
    if HANDLE.exists():
        run(["ip", "netns", "delete", NETWORK_NAMESPACE])


def enter() -> None:
    """Move the calling thread into the namespace. Raises ClusterError if there is none or it is refused."""
    libc = ctypes.CDLL(None, use_errno=True)
    try:
        handle = os.open(HANDLE, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise ClusterError(f"the local cluster's network namespace: {error}; is the cluster up?") from None
    try:
        if libc.setns(handle, _CLONE_NEWNET) != 0:
            raise ClusterError(f"entering {HANDLE}: {os.strerror(ctypes.get_errno())}")
    finally:
        os.close(handle)


def inside(call: Callable[[], Any]) -> Any:
    """Run a call inside the namespace and return what it returns or raise what it raises; the caller stays outside."""
    outcome: list[Any] = []
    failure: list[BaseException] = []

    def work() -> None:
        try:
            enter()
            outcome.append(call())
        except BaseException as error:
            failure.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    if failure:
        raise failure[0]
    return outcome[0]
