"""The request log: a line for each request, which `swingpool simulate` reads back as traffic.

Tokens never pass through the picker, so an answer's length is estimated from its bytes, as Envoy's access log tells
them. Bytes per token are learnt from what workers tell of all answers together. Nothing of a prompt's or an answer's
text is written.
"""

import asyncio
import logging
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson

from swingpool.telemetry.vllm_page import Histogram
from swingpool_control.placement.estimate import TokenRate
from swingpool_control.placement.ticket import Ticket

FLUSH_S = 1.0
MOST_LINES = 100_000
"""Lines that wait to be written; more are dropped, and that is said."""
BLOCK_TOKENS = 16
"""What a hash stands for is rounded to this many tokens, which divide engines' blocks."""
ENVELOPE_BYTES = 400
"""What an answer that is not streamed has beside its text, about."""
FIRST_STREAM_BYTES_PER_TOKEN = 240.0
"""Of a streamed answer, until it is known better: each token comes in a JSON object of its own."""
FIRST_ANSWER_TOKENS = 128
FEWEST_TOKENS = 200
"""Less is not learnt from."""
WEIGHT = 0.1

log = logging.getLogger(__name__)


class Note:
    """What is known of a request before it ends."""

    __slots__ = ("limit", "row", "stream")

    def __init__(self, row: dict[str, Any], *, stream: bool, limit: int | None) -> None:
        self.row = row
        self.stream = stream
        self.limit = limit


class AnswerLengths:
    """Tokens of answers by their bytes."""

    def __init__(self) -> None:
        self.stream_bytes_per_token = FIRST_STREAM_BYTES_PER_TOKEN
        self.mean_tokens = float(FIRST_ANSWER_TOKENS)
        self._streamed_bytes = 0
        self._whole_tokens = 0.0
        self._seen: Histogram | None = None

    def tokens(self, body_bytes: int, *, stream: bool, served: bool, rate: TokenRate, limit: int | None) -> int:
        """Return the estimated tokens of an answer, and count it.

        Args:
            body_bytes: of the answer.
            stream: whether it was streamed.
            served: whether it is an answer; one that is not would have had the mean length.
            rate: tokens of text by its bytes.
            limit: the most that was asked for; None if the request did not say.
        """
        if not served:
            found = round(self.mean_tokens)
        elif stream:
            self._streamed_bytes += body_bytes
            found = round(body_bytes / self.stream_bytes_per_token)
        else:
            found = rate.tokens(max(1, body_bytes - ENVELOPE_BYTES))
            self._whole_tokens += found
        return max(1, found if limit is None else min(found, limit))

    def learn(self, total: Histogram | None) -> None:
        """Compare what was counted with what workers tell of all answers since the last time; call seldom.

        Args:
            total: tokens of all answers so far; those of one token are mostly prefill legs, and left out.
        """
        if total is None:
            return
        before = self._seen
        tokens, answers = _beyond_one(total)
        if before is not None:
            earlier_tokens, earlier_answers = _beyond_one(before)
            tokens, answers = tokens - earlier_tokens, answers - earlier_answers
        if answers <= 0 or tokens < FEWEST_TOKENS:
            return
        self._seen = total
        self.mean_tokens += WEIGHT * (tokens / answers - self.mean_tokens)
        streamed = tokens - self._whole_tokens
        if self._streamed_bytes and streamed > tokens / 2:
            self.stream_bytes_per_token += WEIGHT * (self._streamed_bytes / streamed - self.stream_bytes_per_token)
        self._streamed_bytes, self._whole_tokens = 0, 0.0


class RequestLog:
    """Writes lines in the background.

    Args:
        path: where to; it is appended to, and opened anew each time, so that it may be moved away. None is standard
            output.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._lines: list[bytes] = []
        self._dropped = 0
        self.lengths = AnswerLengths()

    def note(self, ticket: Ticket, body: Mapping[str, Any], *, arrived_unix_s: float, stream: bool) -> Note:
        """Return what is written of a request when it ends."""
        row: dict[str, Any] = {"arrived_unix_s": round(arrived_unix_s, 6), "prompt_tokens": ticket.tokens}
        if ticket.kind:
            row["class"] = ticket.kind
        if ticket.tenant:
            row["tenant"] = ticket.tenant
        if ticket.hashes:
            row["hash_ids"] = ticket.hashes
            row["block_tokens"] = max(1, round(ticket.block_tokens / BLOCK_TOKENS)) * BLOCK_TOKENS
        return Note(row, stream=stream, limit=_limit(body))

    def ended(
        self,
        note: Note,
        *,
        status: int,
        body_bytes: int,
        rate: TokenRate,
        duration_s: float,
        ttft_s: float | None = None,
        worker: str = "",
    ) -> None:
        """Write a request's line.

        Args:
            note: what is known of it.
            status: that the client got.
            body_bytes: of the answer.
            rate: tokens of text by its bytes.
            duration_s: from its arrival to its end.
            ttft_s: to its first token; None if nobody saw one.
            worker: who generated.
        """
        row = note.row
        row["output_tokens"] = self.lengths.tokens(
            body_bytes, stream=note.stream, served=status == 200, rate=rate, limit=note.limit
        )
        row |= {"status": status, "stream": note.stream, "duration_s": round(duration_s, 6)}
        if ttft_s is not None:
            row["ttft_s"] = round(ttft_s, 6)
        if worker:
            row["worker"] = worker
        if len(self._lines) >= MOST_LINES:
            self._dropped += 1
            return
        self._lines.append(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE))

    async def follow(self) -> None:
        """Write what there is, again and again, until cancelled; then once more."""
        try:
            while True:
                await asyncio.sleep(FLUSH_S)
                await asyncio.to_thread(self.flush)
        finally:
            self.flush()

    def flush(self) -> None:
        """Write what there is; what cannot be written is lost, and that is said."""
        lines, self._lines = self._lines, []
        dropped, self._dropped = self._dropped, 0
        if dropped:
            log.warning("the request log is too slow: %d requests are missing from it", dropped)
        if not lines:
            return
        try:
            if self._path is None:
                sys.stdout.buffer.write(b"".join(lines))
                sys.stdout.buffer.flush()
            else:
                with self._path.open("ab") as file:
                    file.write(b"".join(lines))
        except OSError as error:
            log.warning("the request log cannot be written: %s; %d requests are missing from it", error, len(lines))


def _limit(body: Mapping[str, Any]) -> int | None:
    limits = [body.get(name) for name in ("max_completion_tokens", "max_tokens")]
    return min((one for one in limits if isinstance(one, int) and one > 0), default=None)


def _beyond_one(histogram: Histogram) -> tuple[float, float]:
    """Return the tokens of all answers of several tokens, and how many they are."""
    ones = next((count for bound, count in zip(histogram.bounds, histogram.counts, strict=True) if bound == 1.0), 0.0)
    return histogram.sum - ones, histogram.count - ones
