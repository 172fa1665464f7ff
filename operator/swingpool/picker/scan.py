"""Looks for parameters of a transfer in a body that is too large to be kept and read: piece by piece, as it passes.

In JSON such a name stands between quotes, each of its letters perhaps escaped. Within a text the quotes would be
escaped, so that nothing but the name itself, or a text that is just that, looks like this. Other encodings than UTF-8,
which Python's reader takes too, hold zero bytes, which no JSON in UTF-8 does.
"""

import re

from swingpool_control.placement.openai import KV_TRANSFER


def _letter(letter: str) -> str:
    """Return a pattern for a letter as JSON may write it."""
    escaped = "".join(f"[{digit}{digit.upper()}]" for digit in f"{ord(letter):04x}")
    return f"(?:{re.escape(letter)}|\\\\u{escaped})"


_NAME = re.compile(f'"{"".join(map(_letter, KV_TRANSFER))}"'.encode())
_LONGEST = 6 * len(KV_TRANSFER) + 2


class TransferScan:
    """One body's pieces, in their order."""

    __slots__ = ("_kept",)

    def __init__(self) -> None:
        self._kept = b""

    def finds(self, piece: bytes) -> bool:
        """Take a piece; return whether the body so far may make a worker fetch from where its client wants."""
        seen = self._kept + piece
        self._kept = seen[1 - _LONGEST :]
        return b"\0" in piece or _NAME.search(seen) is not None
