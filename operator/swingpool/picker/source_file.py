"""Workers from a JSON file: for tests, and for workers that no Kubernetes runs.

The file holds a list of objects with `address` and `role`, and optionally `pod`, `uid`, `pool`, `ready`, `deleting`,
`generation`, `tls`, `kv_events`, `kv_replay` and `asleep`. Replace it by rename; it is read again within a quarter of a
second of a change.
"""

import asyncio
import logging
from pathlib import Path
from typing import Any

import orjson

from swingpool.picker.members import Member, Publish

POLL_S = 0.25

log = logging.getLogger(__name__)


class FileSource:
    """Follows the workers that a file lists."""

    def __init__(self, path: Path) -> None:
        self._path = path

    async def follow(self, publish: Publish) -> None:
        """Publish the file's members, and again after each change; a broken file leaves what was known."""
        seen: bytes | None = None
        while True:
            try:
                content = self._path.read_bytes()
                if content != seen:
                    members = [_member(item) for item in orjson.loads(content)]
                    seen = content
                    publish(members)
            except (OSError, ValueError, KeyError, TypeError) as error:
                log.warning("the list of workers cannot be read", extra={"file": str(self._path), "error": str(error)})
            await asyncio.sleep(POLL_S)


def _member(item: dict[str, Any]) -> Member:
    address = str(item["address"])
    pod = str(item.get("pod", address))
    return Member(
        pod=pod,
        uid=str(item.get("uid", pod)),
        address=address,
        role=str(item["role"]),
        pool=str(item.get("pool", "")),
        ready=bool(item.get("ready", True)),
        deleting=bool(item.get("deleting", False)),
        generation=str(item.get("generation", "")),
        tls=bool(item.get("tls", False)),
        kv_events=str(item.get("kv_events", "")),
        kv_replay=str(item.get("kv_replay", "")),
        asleep=str(item.get("asleep", "")),
    )
