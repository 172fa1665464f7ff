"""Header blocks of HTTP/2, read once: a proxy sends the same block for each of its calls."""

from typing import Any

import hpack

Headers = list[tuple[bytes, bytes]]

_MOST_KNOWN = 64


class UnreadableBlockError(ValueError):
    """The block is no HPACK, or not of this connection."""


class HeaderBlocks:
    """The reading end of one connection, whose blocks must come in order."""

    def __init__(self) -> None:
        self._decoder = hpack.Decoder()
        self._known: dict[bytes, Headers] = {}
        """Blocks that say the same again as long as the decoder's table stands still."""

    def read(self, block: bytes) -> Headers:
        """Return a block's headers.

        Raises:
            UnreadableBlockError: it has none.
        """
        known = self._known.get(block)
        if known is not None:
            return known
        newest, shape = self._newest(), self._shape()
        try:
            headers = [(name, value) for name, value in self._decoder.decode(block, raw=True)]
        except hpack.HPACKError as error:
            raise UnreadableBlockError(str(error)) from error
        if self._newest() is not newest or self._shape() != shape or len(self._known) >= _MOST_KNOWN:
            self._known.clear()
        else:
            self._known[block] = headers
        return headers

    def _newest(self) -> object:
        # Untyped: compiled code makes a new object of a typed pair each time that it looks.
        entries: Any = self._decoder.header_table.dynamic_entries
        return entries[0] if entries else None

    def _shape(self) -> tuple[int, int]:
        table = self._decoder.header_table
        return len(table.dynamic_entries), table.maxsize
