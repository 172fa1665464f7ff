"""The certificate of a listener of the picker's own: a mounted Secret, taken up anew when it changes."""

import asyncio
import logging
import ssl
from pathlib import Path

LOOK_EVERY_S = 30.0

log = logging.getLogger(__name__)


class Certificate:
    """The files tls.crt and tls.key of a directory.

    Raises:
        OSError: they cannot be read.
        ssl.SSLError: they hold no certificate and its key.
    """

    def __init__(self, directory: Path) -> None:
        self._files = (directory / "tls.crt", directory / "tls.key")
        self._seen = self._text()
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        self.context.set_alpn_protocols(["h2"])
        self.context.load_cert_chain(*self._files)

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
            self.context.load_cert_chain(*self._files)
            log.info("a new certificate is used")
        except OSError as error:  # ssl.SSLError is one
            log.warning("the certificate cannot be used, the one before stays: %s", error)

    def _text(self) -> tuple[bytes, ...]:
        return tuple(file.read_bytes() for file in self._files)
