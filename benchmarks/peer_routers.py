"""Other routers' rules for choosing workers, implemented anew from their descriptions, to compare ours with.

Each sends every request to a prefill and a decode worker at once. Where a router reads figures that workers report now
and then, it gets them here without delay, which flatters it.
"""

from collections import OrderedDict
from collections.abc import Sequence
from random import Random

from swingpool_control import names
from swingpool_control.placement.account import Account, Leg
from swingpool_control.placement.dispatcher import Assignment
from swingpool_control.placement.ticket import Ticket
from swingpool_control.simulation.at_once import FirstInLine


class Peer(FirstInLine):
    """What all of them share: they bind at once. A rule chooses among the workers of a role."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        self.random = Random(seed)

    def choose(self, ticket: Ticket, workers: Sequence[Account]) -> Account:
        """Return the worker that a request goes to, of those of one role."""
        raise NotImplementedError

    def dispatch(self, now_s: float) -> list[Assignment]:
        """As in Placer."""
        found: list[Assignment] = []
        while self.waiting and (workers := self._of(names.ROLE_PREFILL)) and self._of(names.ROLE_DECODE):
            ticket = self.waiting.popleft()
            account = self.choose(ticket, workers)
            leg = account.prefill_sent(ticket.tokens, ticket.tokens, now_s=now_s, hop_s=0.0)
            found.append(Assignment(ticket, account, leg))
        return found

    def generate(self, ticket: Ticket, origin: Account, now_s: float) -> Account | None:
        """As in Placer."""
        workers = [one for one in self._of(names.ROLE_DECODE) if one is not origin]
        if not workers:
            return None
        chosen = self.choose(ticket, workers)
        chosen.decode_sent(ticket.tokens)
        return chosen

    def prefill_ended(self, account: Account, leg: Leg, *, now_s: float, served: bool, at_fault: bool = False) -> None:
        """As in Placer."""
        account.prefill_ended(leg, now_s=now_s, served=served)

    def decode_ended(self, account: Account, tokens: int) -> None:
        """As in Placer."""
        account.decode_ended(tokens)

    def _of(self, role: str) -> list[Account]:
        return [one for one in self.accounts.values() if one.in_rotation and one.role == role]


def requests(account: Account) -> int:
    """Return the requests that a worker holds, of either kind."""
    return account.prefills_in_flight + account.decodes_in_flight


def tokens(account: Account) -> int:
    """Return the tokens that a worker has to compute, or reads at each step."""
    return account.pending_prefill_tokens + account.decode_context_tokens


class RoundRobin(Peer):
    """One after the other."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__(seed)
        self._turns: dict[str, int] = {}

    def choose(self, ticket: Ticket, workers: Sequence[Account]) -> Account:
        """As in Peer."""
        role = workers[0].role
        turn = self._turns.get(role, 0)
        self._turns[role] = turn + 1
        return workers[turn % len(workers)]


class PowerOfTwo(Peer):
    """Of two at random, the one with fewer requests."""

    def choose(self, ticket: Ticket, workers: Sequence[Account]) -> Account:
        """As in Peer."""
        return min(self.random.sample(list(workers), min(2, len(workers))), key=requests)


class TokenJsq(Peer):
    """The one with the fewest tokens to compute, or to read."""

    def choose(self, ticket: Ticket, workers: Sequence[Account]) -> Account:
        """As in Peer."""
        return min(workers, key=lambda one: (tokens(one), requests(one)))


class Remembered:
    """What a router believes to lie in each worker's cache: blocks of the prompts that it sent there, newest last."""

    def __init__(self, most_blocks: int) -> None:
        self._most = most_blocks
        self._blocks: dict[str, OrderedDict[int, None]] = {}

    def matched(self, worker: str, ticket: Ticket) -> float:
        """Return the share of a prompt's blocks that a worker has."""
        blocks = self._blocks.get(worker)
        if not blocks or not ticket.hashes:
            return 0.0
        count = 0
        for one in ticket.hashes:
            if one not in blocks:
                break
            count += 1
        return count / len(ticket.hashes)

    def sent(self, worker: str, ticket: Ticket) -> None:
        """Remember a prompt that goes to a worker."""
        blocks = self._blocks.setdefault(worker, OrderedDict())
        for one in ticket.hashes:
            blocks[one] = None
            blocks.move_to_end(one)
        while len(blocks) > self._most:
            blocks.popitem(last=False)

    def size(self, worker: str) -> int:
        """Return how many blocks a worker has."""
        return len(self._blocks.get(worker, ()))


class LlmdScorers(Peer):
    """llm-d's scorers with their documented default weights: prefix 3, queue 2, KV cache 2; the highest sum wins.

    The queue's score is 1 for the fewest requests among the workers and 0 for the most; that of the KV cache is its
    free share; that of the prefix the matched share of the prompt's blocks.
    """

    WEIGHTS = (3.0, 2.0, 2.0)

    def __init__(self, seed: int = 0) -> None:
        super().__init__(seed)
        self._remembered = Remembered(31_250)

    def choose(self, ticket: Ticket, workers: Sequence[Account]) -> Account:
        """As in Peer."""
        queues = [requests(one) for one in workers]
        fewest, most = min(queues), max(queues)
        scores = []
        for worker, queue in zip(workers, queues, strict=True):
            queue_score = (most - queue) / (most - fewest) if most > fewest else 1.0
            used = min(1.0, tokens(worker) / worker.model.kv_capacity_tokens)
            prefix = self._remembered.matched(worker.worker, ticket)
            scores.append(sum(w * s for w, s in zip(self.WEIGHTS, (prefix, queue_score, 1.0 - used), strict=True)))
        best = max(scores)
        chosen = self.random.choice([one for one, score in zip(workers, scores, strict=True) if score >= best])
        self._remembered.sent(chosen.worker, ticket)
        return chosen


class CacheAware(Peer):
    """vllm-router's cache_aware: affinity while the load is balanced, the shortest queue while it is not.

    Balanced means that the most and the fewest requests differ by no more than 64, or by no more than half. Then a
    worker that has more than 0.3 of the prompt gets it, the one with most of it; if none has, the one that has least in
    its cache.
    """

    ABSOLUTE, RELATIVE, THRESHOLD = 64, 1.5, 0.3

    def __init__(self, seed: int = 0) -> None:
        super().__init__(seed)
        self._remembered = Remembered(1 << 26)

    def choose(self, ticket: Ticket, workers: Sequence[Account]) -> Account:
        """As in Peer."""
        loads = [requests(one) for one in workers]
        if max(loads) - min(loads) > self.ABSOLUTE and max(loads) > self.RELATIVE * min(loads):
            chosen = min(workers, key=requests)
        else:
            matches = [self._remembered.matched(one.worker, ticket) for one in workers]
            best = max(matches)
            if best > self.THRESHOLD:
                chosen = workers[matches.index(best)]
            else:
                least = min(self._remembered.size(one.worker) for one in workers)
                smallest = [one for one in workers if self._remembered.size(one.worker) == least]
                chosen = self.random.choice(smallest)
        self._remembered.sent(chosen.worker, ticket)
        return chosen


PEERS: dict[str, type[Peer]] = {
    "round robin": RoundRobin,
    "power of two (requests)": PowerOfTwo,
    "token JSQ": TokenJsq,
    "llm-d scorers": LlmdScorers,
    "vllm-router cache_aware": CacheAware,
}
"""By name."""
