"""The API server's audit log: every write with its user and field manager, and nothing else."""

import json
import urllib.parse
from collections.abc import Iterator
from pathlib import Path

from e2e.cluster.interface import AuditEvent

_WRITES = ["create", "update", "patch", "delete", "deletecollection"]

POLICY: dict[str, object] = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        # The kubelets' heartbeats would drown everything else.
        {
            "level": "None",
            "userGroups": ["system:nodes"],
            "resources": [{"group": "coordination.k8s.io", "resources": ["leases"]}],
        },
        {"level": "Request", "verbs": _WRITES, "resources": [{"group": "swingpool.dev"}]},
        {"level": "Metadata", "verbs": _WRITES},
        {"level": "None"},
    ],
}


def read(log: Path) -> Iterator[AuditEvent]:
    """Yield the events of an audit log, oldest first; a last line that is still being written is left out."""
    if not log.exists():
        return
    with log.open(encoding="utf-8") as lines:
        for line in lines:
            if line.endswith("\n"):
                yield parse(line)


def parse(line: str) -> AuditEvent:
    """Read one line of an audit log. Raises ValueError if it is not one."""
    event = json.loads(line)
    target = event.get("objectRef", {})
    query = urllib.parse.parse_qs(urllib.parse.urlsplit(event["requestURI"]).query)
    managers = query.get("fieldManager", [])
    return AuditEvent(
        time=event["requestReceivedTimestamp"],
        user=event.get("user", {}).get("username", ""),
        user_agent=event.get("userAgent", ""),
        field_manager=managers[0] if managers else None,
        verb=event["verb"],
        group=target.get("apiGroup", ""),
        resource=target.get("resource", ""),
        subresource=target.get("subresource", ""),
        namespace=target.get("namespace", ""),
        name=target.get("name", ""),
        code=event.get("responseStatus", {}).get("code", 0),
        uri=event["requestURI"],
        body=event.get("requestObject"),
    )
