"""Classes that change while prompts wait: nothing is lost, and everything goes by the new ones."""

from collections.abc import Collection, Mapping

from hypothesis import given
from hypothesis import strategies as st

from swingpool_control.placement.objectives import with_objectives
from swingpool_control.placement.overload import refusal
from swingpool_control.placement.queue import PromptQueue
from swingpool_control.placement.settings import PlacementSettings, RequestClass
from swingpool_control.placement.ticket import Ticket
from swingpool_control.resources.inference_objective import priorities
from tests.unit.placement.test_dispatcher import cluster

STANDARD = RequestClass(most_wait_s=60.0)
BATCH = RequestClass(name="batch", priority=-5, most_wait_s=600.0)
NAMES = ("", "batch", "paid", "free", "nobody-knows")

PRIORITIES = st.dictionaries(st.sampled_from(NAMES[1:4]), st.integers(-3, 3))
TICKETS = st.lists(
    st.tuples(st.sampled_from(NAMES), st.integers(1, 5000), st.sampled_from(["a", "b"])), min_size=1, max_size=30
)


def queue(said: Mapping[str, int]) -> PromptQueue:
    return PromptQueue(PlacementSettings(classes=with_objectives((STANDARD, BATCH), said)))


def push(found: PromptQueue, waiting: list[tuple[str, int, str]], *, but: Collection[int] = ()) -> list[Ticket]:
    tickets = []
    for number, (kind, tokens, tenant) in enumerate(waiting):
        if number in but:
            continue
        ticket = Ticket(number, tokens, arrived_s=number * 0.01, kind=kind, tenant=tenant)
        ticket.work_s = tokens * 1e-4
        found.push(ticket)
        tickets.append(ticket)
    return tickets


def drained(found: PromptQueue, now_s: float = 1.0) -> list[Ticket]:
    order = []
    while (ticket := found.head(now_s)) is not None:
        found.remove(ticket, served=True)
        order.append(ticket)
    return order


@given(before=PRIORITIES, after=PRIORITIES, waiting=TICKETS, gone=st.sets(st.integers(0, 29)))
def test_a_change_loses_nothing_and_orders_as_if_it_had_always_been_so(
    before: dict[str, int], after: dict[str, int], waiting: list[tuple[str, int, str]], gone: set[int]
) -> None:
    changed, always = queue(before), queue(after)
    tickets = push(changed, waiting)
    for number in gone & set(range(len(tickets))):
        changed.remove(tickets[number], served=False)
    changed.reclassify(with_objectives((STANDARD, BATCH), after))
    left = push(always, waiting, but=gone)
    assert (changed.count, changed.tokens) == (len(left), sum(one.tokens for one in left))
    assert [one.number for one in drained(changed)] == [one.number for one in drained(always)]


@given(said=PRIORITIES, waiting=TICKETS)
def test_higher_priorities_go_first_whatever_the_classes_are_called(
    said: dict[str, int], waiting: list[tuple[str, int, str]]
) -> None:
    found = queue(said)
    push(found, waiting)
    order = [found.class_of(one.kind).priority for one in drained(found)]
    assert order == sorted(order, reverse=True)


def test_an_objective_sets_a_listed_class_priority_and_makes_others_like_the_standard() -> None:
    standard, batch, free, paid = with_objectives((STANDARD, BATCH), {"batch": 7, "paid": 10, "free": -1})
    assert standard == STANDARD
    assert (batch.priority, batch.most_wait_s) == (7, BATCH.most_wait_s)
    assert (free.name, free.priority, free.most_wait_s) == ("free", -1, STANDARD.most_wait_s)
    assert (paid.name, paid.priority) == ("paid", 10)


def test_unknown_names_count_as_none() -> None:
    found = queue({"paid": 10})
    assert found.class_of("nobody-knows") == found.class_of("") == STANDARD


def test_many_objectives_of_one_priority_share_a_place_to_wait() -> None:
    found = queue({f"team-{number}": number % 2 for number in range(1000)})
    assert len(found._levels) == 3  # 1, 0 with the standard class, and batch


def test_classes_of_equal_priority_are_weighed_by_their_objective() -> None:
    quick = RequestClass(name="quick", ttft_s=0.5, age_s=5.0)
    slow = RequestClass(name="slow", ttft_s=5.0, age_s=50.0)
    found = PromptQueue(PlacementSettings(classes=(RequestClass(), slow, quick)))
    push(found, [("slow", 1000, ""), ("quick", 1000, "")])
    assert [one.kind for one in drained(found, now_s=0.02)] == ["quick", "slow"]


def test_the_lowest_objective_is_shed_first() -> None:
    found = cluster(1, settings=PlacementSettings(classes=(RequestClass(),), most_queued_tokens=10_000))
    for _ in range(60):
        found.offer(100, tenant="many")

    def refused(kind: str, tokens: int) -> bool:
        return refusal(found.dispatcher, Ticket(9999, tokens, arrived_s=0.0, kind=kind), 0.0) is not None

    assert not refused("free", 1000), "there is one class only"
    found.dispatcher.reclassify(with_objectives((RequestClass(),), {"free": -10, "paid": 10}))
    assert refused("free", 1000)
    assert not refused("paid", 1000)


def objective(name: str, spec: dict[str, object]) -> dict[str, object]:
    return {"metadata": {"name": name}, "spec": spec}


def test_only_the_objectives_of_the_pool_count() -> None:
    found = priorities(
        [
            objective("paid", {"priority": 10, "poolRef": {"name": "chat"}}),
            objective("plain", {"poolRef": {"name": "chat", "kind": "InferencePool"}}),
            objective("elsewhere", {"priority": 3, "poolRef": {"name": "other"}}),
            objective("another-kind", {"priority": 3, "poolRef": {"name": "chat", "kind": "Service", "group": ""}}),
            objective("several", {"priority": -2, "poolRefs": [{"name": "other"}, {"name": "chat"}]}),
            objective("nothing", {}),
            {},
        ],
        pool="chat",
    )
    assert found == {"paid": 10, "plain": 0, "several": -2}
