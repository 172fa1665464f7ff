"""A few calls to the API server, with its certificate checked and without a client library or a process per call."""

import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from e2e.cluster.interface import ClusterError

Runner = Callable[[Callable[[], Any]], Any]
"""Runs a call where the server can be reached: here, or in a network namespace."""


def here(call: Callable[[], Any]) -> Any:
    """Run a call where we are."""
    return call()


class Api:
    """Calls with one user's token."""

    def __init__(self, *, server: str, token: str, ca_file: Path, runner: Runner = here) -> None:
        self._server = server
        self._token = token
        self._ca_file = ca_file
        self._runner = runner

    def ready(self) -> bool:
        """Whether the API server says that it is ready."""
        try:
            return bool(self.call("GET", "/readyz", timeout_s=2.0) == "ok")
        except (ClusterError, OSError):
            return False

    def call(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        content_type: str = "application/json",
        timeout_s: float = 10.0,
    ) -> Any:
        """Make one call and return the answer: JSON decoded, else text. Raises ClusterError with the server's words."""
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": content_type, "Accept": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(  # noqa: S310  # the server is ours
            self._server + path, data=data, method=method, headers=headers
        )
        text: str = self._runner(lambda: self._send(request, timeout_s))
        return json.loads(text) if text.startswith("{") else text

    def apply(self, path: str, manifest: Mapping[str, object]) -> None:
        """Server-side-apply one object, `path` being its own."""
        query = "?fieldManager=cluster-provider&force=true"
        self.call("PATCH", path + query, manifest, content_type="application/apply-patch+yaml")

    def _send(self, request: urllib.request.Request, timeout_s: float) -> str:
        context = ssl.create_default_context(cafile=str(self._ca_file))
        opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
        )
        try:
            with opener.open(request, timeout=timeout_s) as response:
                return str(response.read().decode())
        except urllib.error.HTTPError as error:
            with error:
                words = error.read().decode(errors="replace")
            raise ClusterError(f"{request.method} {request.full_url}: {error.code} {words}") from None
        except (urllib.error.URLError, TimeoutError, ConnectionError) as error:
            raise ClusterError(f"{request.method} {request.full_url}: {error}") from None
