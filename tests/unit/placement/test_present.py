"""What is told of workers' caches and what is estimated, side by side."""

from swingpool_control.placement.cache_events import Cleared, Removed, Stored
from swingpool_control.placement.chains import chain_of
from swingpool_control.placement.present import ESTIMATED, TOLD, Present
from swingpool_control.placement.promised import KEPT_S, MOST_EACH, Promised
from swingpool_control.placement.ticket import Ticket

SIZE = 4
PROMPT = list(range(100))
GUESSED = (1, 2, 3)
GUESS_TOKENS = 30


def ticket(tokens: list[int] = PROMPT, *, traced: bool = True) -> Ticket:
    found = Ticket(0, len(tokens), arrived_s=0.0, hashes=GUESSED, block_tokens=GUESS_TOKENS)
    if traced:
        found.chain, found.chain_tokens = chain_of(tokens, block_tokens=SIZE), SIZE
    return found


def stored(tokens: list[int], blocks: int) -> Stored:
    """The first blocks of a prompt, by keys that say what they hold."""
    keys = tuple(hash(tuple(tokens[: (index + 1) * SIZE])) for index in range(blocks))
    return Stored(keys=keys, parent=None, tokens=tokens[: blocks * SIZE], block_tokens=SIZE)


def present() -> Present:
    found = Present(ttl_s=100.0)
    for worker in "ab":
        found.begin(worker)
    return found


def sent(known: Present, one: Ticket, worker: str, *, now_s: float = 0.0) -> None:
    known.sent(one, worker, capacity_tokens=10_000, now_s=now_s)


def test_what_is_told_counts_and_not_what_is_remembered() -> None:
    known, one = present(), ticket()
    sent(known, one, "a")
    known.take("a", stored(PROMPT, 25))
    assert known.at(one, "a", now_s=1.0) == 96, "the block of the last token is computed always"
    known.take("a", Cleared())
    assert known.at(one, "a", now_s=1.0) == 0
    assert known.tokens(one, now_s=1.0) == {}
    known.take("b", stored(PROMPT, 10))
    assert known.tokens(one, now_s=1.0) == {"b": 40}
    assert (known.how(one, "a"), known.how(ticket(traced=False), "a")) == (TOLD, ESTIMATED)


def test_of_a_worker_of_which_not_all_is_known_the_deeper_counts() -> None:
    known, one = present(), ticket()
    sent(known, one, "a")
    known.take("a", stored(PROMPT, 25))
    known.take("a", Cleared())
    assert known.told is not None
    known.told.quiet("a", "the connection broke")
    assert known.at(one, "a", now_s=1.0) == 90, "as remembered"
    assert known.tokens(one, now_s=1.0) == {"a": 90}
    assert known.how(one, "a") == ESTIMATED
    known.take("a", stored(PROMPT, 24))
    assert known.at(one, "a", now_s=1.0) == 96, "as told: that is there"


def test_without_tokens_what_was_sent_counts() -> None:
    known, one = present(), ticket(traced=False)
    sent(known, one, "a")
    assert known.at(one, "a", now_s=1.0) == 90
    assert known.tokens(one, now_s=1.0) == {"a": 90}


def test_what_was_sent_just_now_counts_until_it_is_told_of() -> None:
    known, one = present(), ticket()
    sent(known, one, "a")
    other = ticket([*PROMPT[:50], *range(1000, 1050)])
    assert known.tokens(other, now_s=1.0) == {"a": 48}
    assert known.at(other, "a", now_s=1.0) == 48
    known.take("a", stored(PROMPT, 25))
    known.take("a", Cleared())
    assert known.tokens(other, now_s=1.0) == {}, "it was told of, and is gone"
    sent(known, one, "a", now_s=2.0)
    assert known.at(other, "a", now_s=2.0 + KEPT_S) == 0, "it never was told of"


def test_a_worker_that_begins_anew_has_nothing_of_what_it_was_sent() -> None:
    known, one = present(), ticket()
    sent(known, one, "a")
    known.begin("a")
    assert known.at(one, "a", now_s=1.0) == 0


def test_who_is_not_among_the_best_is_looked_up() -> None:
    known, one = present(), ticket()
    for number in range(6):
        known.begin(f"w{number}")
        known.take(f"w{number}", stored(PROMPT, 20 + number))
    found = known.tokens(one, now_s=0.0)
    assert found == {"w5": 96, "w4": 96, "w3": 92, "w2": 88}
    assert known.among(found, one, "w0", now_s=0.0) == 80
    assert known.among(found, ticket(traced=False), "w0", now_s=0.0) == 0


def test_prompts_of_a_worker_that_never_tells_do_not_pile_up() -> None:
    promised = Promised()
    for number in range(3 * MOST_EACH):
        promised.add("a", chain_of([number] * 8, block_tokens=SIZE), now_s=0.0)
    assert len(promised) == MOST_EACH
    promised.add("a", chain_of([0] * 8, block_tokens=SIZE), now_s=KEPT_S)
    assert len(promised) == 1
    promised.forget("a")
    assert not promised._by_first


def _part(tokens: list[int], start: int, end: int) -> Stored:
    """Some blocks of a prompt, after those before them."""
    keys = tuple(hash(tuple(tokens[: (index + 1) * SIZE])) for index in range(start - 1, end))
    part = tokens[start * SIZE : end * SIZE]
    return Stored(keys=keys[1:], parent=keys[0], tokens=part, block_tokens=SIZE)


def test_a_beginning_from_before_is_learnt_from_a_prompt_that_was_sent_there() -> None:
    """Whoever listens late knows no beginning that all prompts share: it is never told of again."""
    known, one = Present(ttl_s=100.0), ticket()
    known.begin("a", missing="it had told before")
    told = known.follow()
    other = [*PROMPT[:40], *range(500, 560)]
    known.take("a", _part(other, 10, 20))
    assert told.depth("a", ticket(other).chain) == 0, "what it is the end of is not known"
    sent(known, one, "a")
    known.take("a", _part(PROMPT, 10, 25))  # the first ten blocks were there
    assert told.depth("a", one.chain) == 25
    known.take("a", _part(other, 10, 20))  # evicted and computed anew, it can be told now
    assert told.depth("a", ticket(other).chain) == 20
    for block in reversed(range(9, 25)):
        known.take("a", Removed(keys=(hash(tuple(PROMPT[: (block + 1) * SIZE])),)))
    assert told.depth("a", one.chain) == 0, "of what stands before it nothing is told"
    known.take("a", Cleared())
    assert not told._holders
    assert not told._headless


def test_no_beginning_is_learnt_from_a_prompt_that_goes_on_otherwise() -> None:
    known, one = Present(ttl_s=100.0), ticket()
    known.begin("a", missing="it had told before")
    sent(known, one, "a")
    known.take("a", _part([*range(500, 540), *PROMPT[44:60], *range(600, 640)], 10, 20))
    assert known.follow().depth("a", one.chain) == 0
    known.take("a", Stored(keys=(1,), parent=7, tokens=[1] * 3, block_tokens=SIZE))  # it contradicts itself
