"""Reading a token stream at the least cost: bytes are searched, not parsed, but for an error's text.

A load generator that shares its machine with the system under test must not be what is measured.
"""

import re

_TOKEN = re.compile(rb'"(?:content|text)"\s*:\s*"[^"]')
_FINISH = re.compile(rb'"finish_reason"\s*:\s*"([a-z_]+)"')
_ERROR = re.compile(rb'^data:\s*\{\s*"error"\s*:')
_DONE = b"data: [DONE]"


class TokenStream:
    """State of one server-sent event stream."""

    __slots__ = ("_rest", "done", "error", "finish_reason")

    def __init__(self) -> None:
        self._rest = b""
        self.done = False
        self.finish_reason = ""
        self.error = ""

    def feed(self, data: bytes) -> int:
        """Take the next bytes and return how many tokens they completed."""
        events = (self._rest + data if self._rest else data).split(b"\n\n")
        self._rest = events.pop()
        tokens = 0
        for event in events:
            if event.startswith(_DONE):
                self.done = True
                continue
            if _ERROR.match(event):
                self.error = event[5:].strip().decode(errors="replace")
                continue
            if _TOKEN.search(event):
                tokens += 1
            finish = _FINISH.search(event)
            if finish:
                self.finish_reason = finish.group(1).decode()
        return tokens
