"""The API keys that Envoy asks for: made of a mounted Secret, again whenever that changes.

Envoy checks them itself, so that a picker that is away lets nobody in.
"""

import asyncio
import logging
import re
from pathlib import Path

from swingpool.picker.eds import replace
from swingpool_control.resources.envoy_access import api_keys

LOOK_EVERY_S = 2.0
CLIENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")

log = logging.getLogger(__name__)


def read(directory: Path) -> dict[str, str]:
    """Return the keys by client; those that cannot be used are left out, and said.

    Args:
        directory: a mounted Secret; each file's name is a client, its text the client's key.

    Raises:
        OSError: it cannot be read.
    """
    clients: dict[str, str] = {}
    for path in sorted(directory.iterdir()):
        if not path.is_file() or not CLIENT.fullmatch(path.name):
            continue  # Kubernetes' own links, which start with two dots
        key = path.read_bytes().decode("utf-8", errors="replace").strip()
        if not key or not key.isprintable() or not key.isascii():
            log.error("the API key of client %s is no printable ASCII text: it is left out", path.name)
        elif key in clients.values():
            log.error("client %s has the API key of another client: it is left out", path.name)
        else:
            clients[path.name] = key
    return clients


class ApiKeys:
    """Keeps Envoy's file of keys like the Secret."""

    def __init__(self, directory: Path, file: Path) -> None:
        self._directory = directory
        self._file = file
        self._written: dict[str, str] | None = None

    def look(self) -> None:
        """Write the file if the keys differ from those written last.

        Raises:
            OSError: the Secret cannot be read, or the file cannot be written.
        """
        clients = read(self._directory)
        if clients != self._written:
            replace(self._file, api_keys(clients))
            self._written = clients
            log.info("API keys of %d clients", len(clients))

    async def follow(self) -> None:
        """Look again and again; what fails is said and tried again, and Envoy goes by the keys that it has."""
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            try:
                await asyncio.to_thread(self.look)
            except OSError as error:
                log.error("the API keys cannot be read or written: %s", error)
