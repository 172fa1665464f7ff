"""Certificates of the picker's own: mounted Secrets, taken up anew when they change."""

import asyncio
import logging
import ssl
from pathlib import Path

LOOK_EVERY_S = 30.0

log = logging.getLogger(__name__)


class Certificate:
    """The files tls.crt and tls.key of a directory, which a listener shows.

    Raises:
        OSError: they cannot be read.
        ssl.SSLError: they hold no certificate and its key.
    """

    def __init__(self, directory: Path, *, also: tuple[str, ...] = ()) -> None:
        self._directory = directory
        self._files = tuple(directory / name for name in ("tls.crt", "tls.key", *also))
        self._seen = self._text()
        self.context = self._made()
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        self._load()

    async def follow(self) -> None:
        """Take up what changes, for new connections; until cancelled."""
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            self.look()

    def look(self) -> None:
        """Take up what has changed. A certificate that cannot be used changes nothing, and is told in the log."""
        try:
            text = self._text()
            if text == self._seen:
                return
            self._seen = text
            self._load()
            log.info("a new certificate is used")
        except OSError as error:  # ssl.SSLError is one
            log.warning("the certificate cannot be used, the one before stays: %s", error)

    def _made(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.set_alpn_protocols(["h2"])
        return context

    def _load(self) -> None:
        self.context.load_cert_chain(self._directory / "tls.crt", self._directory / "tls.key")

    def _text(self) -> tuple[bytes, ...]:
        return tuple(file.read_bytes() for file in self._files)


class WorkerTls(Certificate):
    """The same files, which workers are shown, and ca.crt, by which theirs are checked.

    Args:
        directory: where the three files lie.
    """

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, also=("ca.crt",))

    def _made(self) -> ssl.SSLContext:
        return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)

    def _load(self) -> None:
        super()._load()
        self.context.load_verify_locations(self._directory / "ca.crt")
