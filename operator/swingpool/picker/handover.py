"""A request as Envoy hands it to the picker, and where the picker sends it on.

Plain classes, as all that is made once for each request: compiled, they are made several times faster than dataclasses.
"""

from collections.abc import Mapping


class Incoming:
    """A request, as far as it is read.

    Args:
        request_id: Envoy's or the client's.
        path: path and query.
        headers: what the prefill leg passes on.
        body: as it came.
        kind: name of its class, as it says; empty if it names none.
        tenant: whose it is; empty if nobody said.
    """

    __slots__ = ("body", "headers", "kind", "path", "request_id", "tenant")

    def __init__(
        self, *, request_id: str, path: str, headers: Mapping[str, str], body: bytes, kind: str = "", tenant: str = ""
    ) -> None:
        self.request_id = request_id
        self.path = path
        self.headers = headers
        self.body = body
        self.kind = kind
        self.tenant = tenant


class Route:
    """Let Envoy send the request on.

    Args:
        hosts: where to, in the order of trying.
        body: the new body; None leaves the client's.
        second_try_after_s: when Envoy asks a second worker too, if nothing of the first one's answer has come by then;
            0 for never.
    """

    __slots__ = ("body", "hosts", "second_try_after_s")

    def __init__(self, *, hosts: tuple[str, ...], body: bytes | None = None, second_try_after_s: float = 0.0) -> None:
        self.hosts = hosts
        self.body = body
        self.second_try_after_s = second_try_after_s
