"""Placement by the shortest queue: what must hold for any cluster, and the examples that say why."""

import random
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from swingpool_control import names
from swingpool_control.simulation.policies.candidates import Candidate, Hold, Placement, PlacementRequest, Split, Whole
from swingpool_control.simulation.policies.shortest_queue import any_order, decode_order, place

ROLES = st.sampled_from([names.ROLE_PREFILL, names.ROLE_DECODE, names.ROLE_DRAINING, "", "other"])
COUNTS = st.integers(0, 50)


@st.composite
def clusters(draw: st.DrawFn) -> list[Candidate]:
    return [
        Candidate(
            worker=f"10.0.0.{number}:8000",
            role=draw(ROLES),
            in_rotation=draw(st.booleans()),
            pending_prefill_tokens=draw(st.integers(0, 5000)),
            prefills_in_flight=draw(COUNTS),
            decodes_in_flight=draw(COUNTS),
            decode_context_tokens=draw(st.integers(0, 5000)),
        )
        for number in range(draw(st.integers(0, 8)))
    ]


REQUESTS = st.builds(
    PlacementRequest,
    prompt_tokens=st.integers(0, 100_000),
    whole_because=st.sampled_from(["", "it asks for the prompt"]),
)
TIES = st.integers(0, 2**31)


def named(placement: Placement) -> set[str]:
    match placement:
        case Split(prefill=prefill, decode=decode):
            return {prefill, *decode}
        case Whole(workers=workers):
            return set(workers)
        case Hold():
            return set()


@given(REQUESTS, clusters(), TIES, st.sets(st.integers(0, 7)))
def test_only_workers_in_rotation_and_of_a_serving_role_get_requests(
    request: PlacementRequest, candidates: list[Candidate], tie: int, broken: set[int]
) -> None:
    failed = frozenset(f"10.0.0.{number}:8000" for number in broken)
    serving = {c.worker for c in candidates if c.in_rotation and c.role in (names.ROLE_PREFILL, names.ROLE_DECODE)}
    placement = place(request, candidates, tie=tie, failed=failed)
    assert named(placement) <= serving
    if isinstance(placement, Split):
        assert placement.prefill not in failed
        assert placement.prefill not in placement.decode
        assert not request.whole_because


@given(REQUESTS, clusters(), TIES, st.randoms(use_true_random=False))
def test_the_order_of_workers_does_not_matter(
    request: PlacementRequest, candidates: list[Candidate], tie: int, shuffler: random.Random
) -> None:
    shuffled = list(candidates)
    shuffler.shuffle(shuffled)
    assert place(request, shuffled, tie=tie) == place(request, candidates, tie=tie)
    assert any_order(shuffled, tie=tie) == any_order(candidates, tie=tie)


@given(REQUESTS, clusters(), TIES, st.booleans())
def test_nobody_waits_while_somebody_serves(
    request: PlacementRequest, candidates: list[Candidate], tie: int, all_failed: bool
) -> None:
    serving = any(c.in_rotation and c.role in (names.ROLE_PREFILL, names.ROLE_DECODE) for c in candidates)
    failed = frozenset(c.worker for c in candidates if all_failed)
    assert isinstance(place(request, candidates, tie=tie, failed=failed), Hold) == (not serving)


@given(REQUESTS, clusters(), TIES)
def test_prefill_goes_where_the_fewest_tokens_wait(
    request: PlacementRequest, candidates: list[Candidate], tie: int
) -> None:
    placement = place(request, candidates, tie=tie)
    if isinstance(placement, Split):
        waiting = {c.worker: c.pending_prefill_tokens for c in candidates if c.in_rotation}
        prefill = [c.worker for c in candidates if c.in_rotation and c.role == names.ROLE_PREFILL]
        assert waiting[placement.prefill] == min(waiting[worker] for worker in prefill)


@given(REQUESTS, clusters(), TIES)
def test_every_decode_worker_is_an_alternative_once(
    request: PlacementRequest, candidates: list[Candidate], tie: int
) -> None:
    order = decode_order(request, candidates, tie=tie)
    assert sorted(order) == sorted(c.worker for c in candidates if c.in_rotation and c.role == names.ROLE_DECODE)


@given(REQUESTS, clusters(), TIES, st.integers(1, 1000))
def test_more_load_never_makes_a_prefill_worker_the_choice(
    request: PlacementRequest, candidates: list[Candidate], tie: int, more: int
) -> None:
    before = place(request, candidates, tie=tie)
    if not isinstance(before, Split):
        return
    for index, candidate in enumerate(candidates):
        if candidate.worker != before.prefill:
            loaded = list(candidates)
            loaded[index] = replace(candidate, pending_prefill_tokens=candidate.pending_prefill_tokens + more)
            after = place(request, loaded, tie=tie)
            assert isinstance(after, Split)
            assert after.prefill == before.prefill


def worker(name: str, role: str, **load: int) -> Candidate:
    return Candidate(worker=name, role=role, in_rotation=True, **load)


ASKED = PlacementRequest(prompt_tokens=100)
PAIR = [worker("p", "prefill"), worker("d", "decode")]


def test_equals_share_evenly() -> None:
    equals = [worker(f"p{number}", "prefill") for number in range(3)] + [worker("d", "decode")]
    chosen = [place(ASKED, equals, tie=tie) for tie in range(9)]
    assert sorted(one.prefill for one in chosen if isinstance(one, Split)) == ["p0"] * 3 + ["p1"] * 3 + ["p2"] * 3


def test_a_long_context_weighs_more_than_two_short_ones() -> None:
    long, short = (
        worker("long", "decode", decodes_in_flight=1, decode_context_tokens=9000),
        worker("short", "decode", decodes_in_flight=2, decode_context_tokens=600),
    )
    assert decode_order(ASKED, [long, short], tie=0) == ("short", "long")


def test_a_role_without_workers_leaves_the_other_to_serve_whole() -> None:
    assert place(ASKED, PAIR[:1], tie=0) == Whole(workers=("p",), why="no decode worker is in rotation")
    assert place(ASKED, PAIR[1:], tie=0) == Whole(workers=("d",), why="no prefill worker is in rotation")
    assert isinstance(place(ASKED, [], tie=0), Hold)


def test_after_its_prefill_workers_failed_a_request_is_served_whole() -> None:
    placement = place(ASKED, PAIR, tie=0, failed=frozenset({"p"}))
    assert placement == Whole(workers=("d",), why="no prefill worker is left after 1 failed")


def test_a_request_that_must_stay_whole_says_why() -> None:
    whole = PlacementRequest(prompt_tokens=1, whole_because="it holds several prompts")
    assert place(whole, PAIR, tie=0) == Whole(workers=("d",), why="it holds several prompts")


def test_the_holder_of_the_cache_is_no_decode_worker_for_it() -> None:
    assert decode_order(ASKED, [worker("d", "decode"), worker("flipped", "decode")], tie=0, without="flipped") == ("d",)
