"""Where generated tokens go: straight into the connection of a streamed answer, or nowhere but a count.

A stream's tokens are written to the transport by the driver itself, rendered and framed beforehand: no task wakes up
for a token. What a slow client does not read is buffered, bounded by the longest answer.
"""

import asyncio

from swingpool.worker import render, text
from swingpool.worker.protocol import Choice
from swingpool.worker.render import Envelope, TokenFrames


class Answer:
    """All the sequences of one request; `done` is set when they have ended, with False if the engine failed."""

    def __init__(self, envelope: Envelope) -> None:
        self.envelope = envelope
        self.done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self.output_tokens = 0
        self._left = len(envelope.generation.choices)

    def ended(self) -> bool:
        """Count a sequence that ended; tell whether it was the last."""
        self._left -= 1
        if self._left:
            return False
        self._settle(whole=True)
        return True

    def failed(self) -> None:
        """The engine failed: nothing more will come."""
        self._settle(whole=False)

    def _settle(self, *, whole: bool) -> None:
        if not self.done.done():
            self.done.set_result(whole)


class Counted:
    """A sequence of an answer that is sent at once when it is whole."""

    __slots__ = ("_answer",)

    def __init__(self, answer: Answer) -> None:
        self._answer = answer

    def token(self, number: int, *, last: bool) -> None:
        """Take a token."""
        del number
        if last:
            self._answer.ended()

    def failed(self) -> None:
        """Learn that there will be no more."""
        self._answer.failed()


class Streamed:
    """A sequence whose tokens are written to a connection as they come."""

    __slots__ = ("_answer", "_choice", "_frames", "_transport")

    def __init__(self, answer: Answer, index: int, transport: asyncio.Transport) -> None:
        self._answer = answer
        self._choice: Choice = answer.envelope.generation.choices[index]
        self._frames = TokenFrames(answer.envelope, index)
        self._transport = transport

    def token(self, number: int, *, last: bool) -> None:
        """Write a token, and what comes before the first or after the last of the answer."""
        answer = self._answer
        generation = answer.envelope.generation
        answer.output_tokens += 1
        word = text.word(self._choice.seed, number)
        finish = self._choice.finish if last else None
        if generation.continuous_usage:
            data = self._frames.counted(word, finish, self._choice.prompt.tokens, number + 1)
        elif finish is not None:
            data = self._frames.last(word, finish)
        else:
            data = self._frames.token(word)
        if not number:
            data = self._frames.opening() + data
        if last and answer.ended():
            if generation.include_usage:
                data += render.usage_event(answer.envelope, answer.output_tokens)
            data += render.framed(render.DONE)
        if not self._transport.is_closing():
            self._transport.write(data)

    def failed(self) -> None:
        """Learn that there will be no more."""
        self._answer.failed()
