"""What became of one request."""

from swingpool_control.simulation.traffic import Arrival


class Outcome:
    """What became of one request; made once for each, so a plain class, and nobody changes it.

    Args:
        number: of the arrival, counted from 0.
        arrival: the request.
        first_s: when its first token came; None if none did.
        end_s: when it ended.
        result: `completed`, `refused` (no worker in time, or longer than any KV cache) or `failed` (its worker was
            lost, or nothing went on any more).
    """

    __slots__ = ("arrival", "end_s", "first_s", "number", "result")

    def __init__(self, *, number: int, arrival: Arrival, first_s: float | None, end_s: float, result: str) -> None:
        self.number = number
        self.arrival = arrival
        self.first_s = first_s
        self.end_s = end_s
        self.result = result

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Outcome) and self._values() == other._values()

    def __hash__(self) -> int:
        return hash(self._values())

    def __repr__(self) -> str:
        return f"Outcome{self._values()}"

    def _values(self) -> tuple[int, Arrival, float | None, float, str]:
        return self.number, self.arrival, self.first_s, self.end_s, self.result

    @property
    def ttft_s(self) -> float | None:
        """Time to first token."""
        return None if self.first_s is None else self.first_s - self.arrival.at_s

    @property
    def mean_itl_s(self) -> float | None:
        """Mean time between its tokens; None if it has fewer than two, or not all of them."""
        gaps = self.arrival.output_tokens - 1
        if self.first_s is None or gaps < 1 or self.result != "completed":
            return None
        return (self.end_s - self.first_s) / gaps
