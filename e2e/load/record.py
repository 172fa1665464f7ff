"""What became of one request, in the terms of a client: when each token came, and whether the answer was whole."""

import dataclasses
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Outcome(StrEnum):
    """How a request ended. Only WHOLE is success."""

    WHOLE = "whole"
    """Status 200, every token asked for, a finish reason, and the end marker of a stream."""
    REFUSED = "refused"
    """A status other than 200."""
    ERROR_EVENT = "error-event"
    """An error told within the stream, after status 200."""
    INCOMPLETE = "incomplete"
    """Ended in good order with fewer tokens than asked for, or without a finish reason."""
    CUT = "cut"
    """The connection broke, or the stream ended without its end marker."""
    TIMED_OUT = "timed-out"
    """No whole answer within the time limit."""
    NOT_SENT = "not-sent"
    """The load generator was at its own bound."""


@dataclass(slots=True, kw_only=True)
class Record:
    """One request. Times are seconds from the start of the run; None where that moment never came."""

    number: int
    phase: str
    chat: bool
    stream: bool
    prompt_tokens: int
    expected_tokens: int
    due_s: float
    sent_s: float | None = None
    first_token_s: float | None = None
    last_token_s: float | None = None
    ended_s: float | None = None
    status: int = 0
    received_tokens: int = 0
    outcome: Outcome = Outcome.CUT
    error: str = ""
    itl_s: list[float] = field(default_factory=list)
    """Time between each two tokens, in order; streams only."""

    @property
    def succeeded(self) -> bool:
        """Whether the whole answer came."""
        return self.outcome is Outcome.WHOLE

    @property
    def ttft_s(self) -> float | None:
        """Sending to first token; None if there was none or it is no stream."""
        if self.first_token_s is None or self.sent_s is None or not self.stream:
            return None
        return self.first_token_s - self.sent_s

    def to_json(self) -> dict[str, Any]:
        """Return the record as plain data, times to a tenth of a millisecond."""
        data = {
            key: round(value, 4) if isinstance(value, float) else value
            for key, value in dataclasses.asdict(self).items()
        }
        data["itl_s"] = [round(value, 4) for value in self.itl_s]
        return data

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "Record":
        """Read a record from plain data."""
        return cls(**{**data, "outcome": Outcome(data["outcome"])})
