"""The published simulator's scheduling: shortest queue for whole requests, and the mixed pool for split ones.

Both decide when a request arrives, for its prompt and its answer at once, and know how long the answer will be.
"""

from collections.abc import Callable, Mapping, Sequence

from benchmarks.splitwise_rules.machine import Machine
from swingpool_control import names
from swingpool_control.placement.account import Account, Leg
from swingpool_control.placement.dispatcher import Assignment
from swingpool_control.placement.ticket import Ticket
from swingpool_control.simulation.at_once import FirstInLine

LONG_QUEUE_TOKENS = 8192
"""Pending prompt tokens from which on a queue is long."""

Load = Callable[[str], float]


class Scheduler(FirstInLine):
    """Who decides, and what it remembers of its decisions.

    Args:
        output_tokens: of every request, by its number.
    """

    def __init__(self, output_tokens: Sequence[int]) -> None:
        super().__init__()
        self.machines: Mapping[str, Machine] = {}
        """By name; known before the first request comes."""
        self.first_s: dict[int, float] = {}
        """When the first token of a split request was there, which is when its prompt was computed."""
        self._output_tokens = output_tokens
        self._answers: dict[int, tuple[str, int]] = {}
        """Where a request's answer is to be, and the memory that it needs there with its prompt."""
        self._answering: dict[str, int] = {}
        self._reserved: dict[str, int] = {}

    def changed(self, account: Account, *, role: str, in_rotation: bool) -> None:
        """Take in a machine."""
        super().changed(account, role=role, in_rotation=in_rotation)
        self._answering.setdefault(account.worker, 0)
        self._reserved.setdefault(account.worker, 0)

    def dispatch(self, now_s: float) -> list[Assignment]:
        """Return where requests go that have come."""
        found = []
        while self.waiting:
            ticket = self.waiting.popleft()
            tokens = ticket.tokens + self._output_tokens[ticket.number]
            prompt, answer = self._choose(ticket.tokens, tokens)
            self._answers[ticket.number] = answer, tokens
            self._answering[answer] += 1
            self._reserved[answer] += tokens
            account = self.accounts[prompt]
            leg = None if prompt == answer else Leg(ticket.tokens, ticket.tokens, 0, account.epoch)
            found.append(Assignment(ticket, account, leg))
        return found

    def generate(self, ticket: Ticket, origin: Account, now_s: float) -> Account | None:
        """Return who generates; that was decided long ago."""
        self.first_s[ticket.number] = now_s
        return self.accounts[self._answers[ticket.number][0]]

    def prefill_ended(self, account: Account, leg: Leg, *, now_s: float, served: bool, at_fault: bool = False) -> None:
        """Nothing is accounted for here: the machines are asked."""

    def decode_ended(self, account: Account, tokens: int) -> None:
        """As little is here; see `over`."""

    def over(self, number: int) -> None:
        """Let go of what a request reserved."""
        answer, tokens = self._answers.pop(number)
        self._answering[answer] -= 1
        self._reserved[answer] -= tokens

    def _choose(self, prompt_tokens: int, tokens: int) -> tuple[str, str]:
        """Return who computes a prompt and who generates its answer."""
        raise NotImplementedError

    def _pending(self, name: str) -> float:
        """Return a machine's queue: prompt tokens that are not computed, and one for each answer that is not over."""
        return self.machines[name].prompt_tokens + self._answering[name]

    def _memory(self, name: str) -> float:
        """Return the memory of a machine that is reserved."""
        return self.machines[name].prompt_memory_tokens + self._reserved[name]


class ShortestQueue(Scheduler):
    """The baseline: every machine does both, the one with the shortest queue gets the next request."""

    def _choose(self, prompt_tokens: int, tokens: int) -> tuple[str, str]:
        chosen = min(self.machines, key=self._pending)
        return chosen, chosen


class MixedPool(Scheduler):
    """Splitwise: a pool of prompt machines, one of token machines, and machines of either that do both for a while."""

    def __init__(self, output_tokens: Sequence[int]) -> None:
        super().__init__(output_tokens)
        self._prompt: list[str] = []
        self._token: list[str] = []
        self._mixed: dict[str, int] = {}
        """Each with how often it had run out of tasks when it became mixed."""

    def changed(self, account: Account, *, role: str, in_rotation: bool) -> None:
        """Take in a machine."""
        super().changed(account, role=role, in_rotation=in_rotation)
        if in_rotation and account.worker not in (*self._prompt, *self._token, *self._mixed):
            self._home(account.worker).append(account.worker)

    def _home(self, name: str) -> list[str]:
        return self._prompt if self.accounts[name].role == names.ROLE_PREFILL else self._token

    def _choose(self, prompt_tokens: int, tokens: int) -> tuple[str, str]:
        self._return()
        prompt = self._with_short_queue(self._prompt, prompt_tokens)
        prompt = prompt or self._with_short_queue(self._mixed, prompt_tokens)
        answer = self._with_room(self._token, tokens) or self._with_room(self._mixed, tokens)
        if prompt is None and self._token:
            prompt = self._mix(self._token, self._pending)
        if answer is None and self._prompt:
            answer = self._mix(self._prompt, self._memory)
        if prompt is None or answer is None:
            both = min((*self._prompt, *self._mixed, *self._token), key=self._pending)
            return both, both
        return prompt, answer

    def _return(self) -> None:
        """Let mixed machines that have had nothing to do go back to where they belong."""
        for name, emptied in list(self._mixed.items()):
            if self.machines[name].emptied > emptied:
                del self._mixed[name]
                self._home(name).append(name)

    def _mix(self, pool: list[str], load: Load) -> str:
        chosen = min(pool, key=load)
        pool.remove(chosen)
        self._mixed[chosen] = self.machines[chosen].emptied
        return chosen

    def _with_short_queue(self, pool: Sequence[str] | Mapping[str, int], prompt_tokens: int) -> str | None:
        if not pool:
            return None
        chosen = min(pool, key=self._pending)
        long = self._pending(chosen) + prompt_tokens > LONG_QUEUE_TOKENS
        return None if long and self.machines[chosen].queued else chosen

    def _with_room(self, pool: Sequence[str] | Mapping[str, int], tokens: int) -> str | None:
        if not pool:
            return None
        chosen = min(pool, key=self._memory)
        room = self.machines[chosen].limits.total_blocks
        return None if self._memory(chosen) + tokens >= room else chosen
