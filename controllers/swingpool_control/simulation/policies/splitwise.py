"""Splitwise's scheduling with a mixed pool, built from its description: a fixed fleet whose machines help out.

A prompt goes to the prompt machine with the fewest pending tokens, its generation to the token machine with the least
reserved memory. Where all prompt queues are long, a token machine takes prompts too; where all token machines are
full, a prompt machine generates too; either returns by itself when what it helped with is done.
"""

from collections.abc import Sequence

from swingpool_control import names
from swingpool_control.simulation.policies.candidates import Candidate, Hold, Placement, PlacementRequest, Split, Whole
from swingpool_control.simulation.policies.interface import Given, Placing
from swingpool_control.simulation.policies.static import Static

LONG_QUEUE_TOKENS = 8192


class MixedPool:
    """The two decisions.

    Args:
        kv_tokens: memory of a machine, in tokens of KV cache.
        long_tokens: pending prompt tokens from which on a queue is long.
    """

    def __init__(self, *, kv_tokens: int, long_tokens: int = LONG_QUEUE_TOKENS) -> None:
        self._kv_tokens = kv_tokens
        self._long_tokens = long_tokens

    def place(
        self,
        request: PlacementRequest,
        candidates: Sequence[Candidate],
        *,
        tie: int,
        failed: frozenset[str] = frozenset(),
    ) -> Placement:
        """Decide where a request goes."""
        serving = _ordered([one for one in candidates if one.in_rotation], tie)
        if not serving:
            return Hold(why="no worker is in rotation")
        untried = [one for one in serving if one.worker not in failed]
        if not untried or request.whole_because:
            order = tuple(one.worker for one in sorted(serving, key=_memory))
            return Whole(workers=order, why=request.whole_because or "every prompt machine failed")
        prompt = self._prompt_machine(untried)
        tokens = self._token_machines(request, serving)
        if prompt.role != names.ROLE_PREFILL and (tokens[0] == prompt.worker or len(tokens) == 1):
            return Whole(workers=(prompt.worker,), why="a mixed machine does both")
        tokens = tuple(one for one in tokens if one != prompt.worker)
        if not tokens:
            return Whole(workers=(prompt.worker,), why="there is no other machine")
        return Split(prefill=prompt.worker, decode=tokens, why="fewest pending tokens, least reserved memory")

    def decode_order(
        self, request: PlacementRequest, candidates: Sequence[Candidate], *, tie: int, without: str = ""
    ) -> tuple[str, ...]:
        """Return the machines that may generate, best first."""
        serving = _ordered([one for one in candidates if one.in_rotation and one.worker != without], tie)
        return self._token_machines(request, serving)

    def _prompt_machine(self, serving: list[Candidate]) -> Candidate:
        own = [one for one in serving if one.role == names.ROLE_PREFILL]
        others = [one for one in serving if one.role != names.ROLE_PREFILL]
        # Among token machines those that are mixed already come first, as long as their queue is not long.
        for machines in (
            own,
            [one for one in others if one.pending_prefill_tokens],
            others,
        ):
            if machines:
                best = min(machines, key=_pending)
                if best.pending_prefill_tokens < self._long_tokens:
                    return best
        return min(serving, key=_pending)

    def _token_machines(self, request: PlacementRequest, serving: list[Candidate]) -> tuple[str, ...]:
        own = sorted((one for one in serving if one.role == names.ROLE_DECODE), key=_memory)
        others = sorted((one for one in serving if one.role != names.ROLE_DECODE), key=_memory)
        full = [one for one in own if _reserved(one) + request.prompt_tokens > self._kv_tokens]
        free = [one for one in own if one not in full]
        return tuple(one.worker for one in (*free, *others, *full))


def make(given: Given) -> Static:
    """Set it to work: a fixed fleet with this placement."""
    pool = MixedPool(kv_tokens=min(model.kv_capacity_tokens for model in given.models.values()))
    return Static(given, Placing(place=pool.place, decode_order=pool.decode_order))


def _ordered(candidates: list[Candidate], tie: int) -> list[Candidate]:
    by_name = sorted(candidates, key=lambda one: one.worker)
    start = tie % len(by_name) if by_name else 0
    return by_name[start:] + by_name[:start]


def _pending(candidate: Candidate) -> float:
    return candidate.pending_prefill_tokens


def _reserved(candidate: Candidate) -> float:
    return candidate.decode_context_tokens + candidate.pending_prefill_tokens


def _memory(candidate: Candidate) -> float:
    return _reserved(candidate)
