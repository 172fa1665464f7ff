"""The list of workers that Envoy follows: a file, replaced as a whole, and only when it changes.

It holds every worker that exists, in rotation or not: Envoy sends a request where the picker says, and keeps the
connections of workers that get nothing new. It outlives the picker, so that Envoy can go on without it.
"""

import logging
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import orjson

from swingpool.picker.fleet import Fleet
from swingpool_control.resources.envoy import WORKERS_CLUSTER
from swingpool_control.resources.envoy_worker_tls import OF_TLS

log = logging.getLogger(__name__)

_ASSIGNMENT = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"

Host = tuple[str, bool]
"""A worker's `ip:port`, and whether it speaks TLS."""


class EdsFile:
    """Writes the file after each change of membership."""

    def __init__(self, path: Path, fleet: Fleet) -> None:
        self.written = False
        """Whether the file holds what the fleet holds."""
        self._path = path
        self._fleet = fleet
        self._written: tuple[Host, ...] | None = None
        fleet.on_membership(self.follow)

    def follow(self) -> None:
        """Write the file if the workers differ from those written last."""
        members = (worker.member for worker in self._fleet.workers() if not worker.member.deleting)
        hosts = tuple(sorted((member.address, member.tls) for member in members))
        if hosts != self._written:
            self.written = False
            try:
                write(self._path, hosts)
            except OSError as error:
                log.error("Envoy's list of workers cannot be written: %s", error)
                return
            self._written = hosts
        self.written = True


def ensure(path: Path) -> None:
    """Write an empty list where there is no file: Envoy refuses to start without one."""
    if not path.exists():
        write(path, ())


def write(path: Path, hosts: Iterable[Host]) -> None:
    """Replace the list."""
    resource = {"@type": _ASSIGNMENT, "cluster_name": WORKERS_CLUSTER, "endpoints": _endpoints(hosts)}
    replace(path, {"resources": [resource]})


def replace(path: Path, content: dict[str, Any]) -> None:
    """Replace a file that Envoy follows in one step, by rename within its directory, which Envoy watches."""
    temporary = path.with_name(f".{path.name}.new")
    with temporary.open("wb") as file:
        file.write(orjson.dumps(content, option=orjson.OPT_INDENT_2))
        file.flush()
        os.fsync(file.fileno())
    temporary.rename(path)


def _endpoints(hosts: Iterable[Host]) -> list[dict[str, Any]]:
    endpoints: list[dict[str, Any]] = []
    for address, tls in hosts:
        host, _, port = address.rpartition(":")
        socket_address = {"address": host.strip("[]"), "port_value": int(port)}
        found: dict[str, Any] = {"endpoint": {"address": {"socket_address": socket_address}}}
        endpoints.append(found | ({"metadata": {"filter_metadata": OF_TLS}} if tls else {}))
    return [{"lb_endpoints": endpoints}] if endpoints else []
