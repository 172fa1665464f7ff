"""One sequence on its way through the worker: its request, its times, and where its tokens go."""

from dataclasses import dataclass
from typing import Protocol

from swingpool.worker.transfer import Remote
from swingpool_control.engine.work import Request


class Sink(Protocol):
    """Takes what a sequence generates."""

    def token(self, number: int, *, last: bool) -> None:
        """Take the `number`-th token."""
        ...

    def failed(self) -> None:
        """Learn that there will be no more, because the engine failed."""
        ...


@dataclass(slots=True, kw_only=True)
class Job:
    """A sequence that the engine works on. Times are the driver's clock, None while they have not come."""

    request: Request
    sink: Sink
    finish: str
    """Why it ends, if nothing goes wrong: `stop` or `length`."""
    remote: Remote | None
    """Where its KV cache waits to be pulled; None if there is none, or not any more."""
    arrived_s: float
    scheduled_s: float | None = None
    first_token_s: float | None = None
    last_token_s: float = 0.0
    tokens: int = 0
