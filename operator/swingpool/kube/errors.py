"""One error for every call to the API server that failed, whatever layer it failed in."""

import httpx2
import msgspec
from lightkube.core.exceptions import ApiError, ConfigError

FAILURES = (httpx2.HTTPError, httpx2.StreamError, msgspec.MsgspecError, ConfigError, KeyError, OSError, TimeoutError)
"""What a call may raise: no or a bad answer, a token file that is away, an error answer without a content type."""


class KubeError(Exception):
    """A call to the API server failed.

    Attributes:
        status: HTTP status of the answer; None if there was none (refused, timed out, cut off).
        reason: Kubernetes' CamelCase reason, such as `Conflict`; the exception's type if there was no answer.
        message: what the server, or the connection, said.
    """

    def __init__(self, *, status: int | None, reason: str, message: str, call: str = "") -> None:
        self.status = status
        self.reason = reason
        self.message = message
        self.call = call
        code = "no answer" if status is None else str(status)
        super().__init__(f"{call}: {code} {reason}: {message}" if call else f"{code} {reason}: {message}")

    @property
    def not_found(self) -> bool:
        """The object, its namespace or its kind does not exist."""
        return self.status == 404

    @property
    def conflict(self) -> bool:
        """The object changed meanwhile, exists already, or another field manager owns a field."""
        return self.status == 409

    @property
    def invalid(self) -> bool:
        """The server will refuse the same call again: validation, or a test of a JSON patch that failed."""
        return self.status in (400, 415, 422)

    @property
    def gone(self) -> bool:
        """The resource version is too old; list anew."""
        return self.status == 410

    @property
    def transient(self) -> bool:
        """The same call may well succeed soon: no answer, a conflict, too many calls, trouble of the server's."""
        return self.status is None or self.status in (409, 429) or self.status >= 500

    @property
    def unanswered(self) -> bool:
        """Nobody knows whether the server carried the call out."""
        return self.status is None

    @property
    def may_have_happened(self) -> bool:
        """The server may have carried the call out, or still do so: no answer, or trouble of its own."""
        return self.status is None or self.status >= 500


def error_from(failure: Exception, *, call: str) -> KubeError:
    """Return what a call raised as a `KubeError`."""
    if isinstance(failure, ApiError):
        status = failure.status
        return KubeError(status=status.code, reason=status.reason or "Unknown", message=status.message or "", call=call)
    if isinstance(failure, httpx2.HTTPStatusError):
        response = failure.response
        reason = response.reason_phrase.replace(" ", "") or "Unknown"
        return KubeError(status=response.status_code, reason=reason, message=str(failure), call=call)
    return KubeError(status=None, reason=type(failure).__name__, message=str(failure) or repr(failure), call=call)
