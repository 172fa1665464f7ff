"""Late binding: what must hold for any cluster and any load, and the examples that say why."""

import heapq
import random
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from swingpool_control import names
from swingpool_control.engine.linear import LinearModel, StepCost
from swingpool_control.placement.account import Account
from swingpool_control.placement.dispatcher import Assignment, Dispatcher
from swingpool_control.placement.limits import DeflectionLimits
from swingpool_control.placement.settings import PlacementSettings, RequestClass
from swingpool_control.placement.ticket import Ticket

MODEL = LinearModel(
    name="test",
    step=StepCost(
        base_s=0.01,
        prefill_base_s=0.01,
        prefill_token_s=1e-4,
        prefill_context_token2_s=0.0,
        sequence_s=1e-4,
        context_token_s=1e-7,
    ),
    kv_capacity_tokens=100_000,
    kv_bytes_per_token=1e5,
    max_batched_tokens=2048,
    max_sequences=128,
    link_bytes_per_s=1e10,
    link_latency_s=0.005,
    startup_s=1.0,
)
AGE_S = 5.0
SETTINGS = PlacementSettings(classes=(RequestClass(age_s=AGE_S),))
DEFLECTING = PlacementSettings(
    classes=(RequestClass(age_s=AGE_S),), limits=DeflectionLimits(itl_s=0.05, over_share=0.01)
)
GENERATES_S = 1.0


@dataclass
class Cluster:
    """Workers that take as long as the model says, and what happened to every request."""

    dispatcher: Dispatcher
    accounts: dict[str, Account] = field(default_factory=dict)
    ends: list[tuple[float, int, Assignment | Ticket, Account]] = field(default_factory=list)
    sent: list[tuple[float, Assignment]] = field(default_factory=list)
    now_s: float = 0.0
    count: int = 0

    def worker(self, name: str, role: str, *, in_rotation: bool = True, generation: str = "") -> Account:
        account = self.accounts.get(name) or Account(name, MODEL, generation=generation)
        self.accounts[name] = account
        self.dispatcher.changed(account, role=role, in_rotation=in_rotation)
        return account

    def offer(self, tokens: int, **more: object) -> Ticket:
        ticket = Ticket(self.count, tokens, arrived_s=self.now_s, **more)  # type: ignore[arg-type]
        self.count += 1
        self.dispatcher.offer(ticket, self.now_s)
        self.pump()
        return ticket

    def pump(self) -> list[Assignment]:
        found = self.dispatcher.dispatch(self.now_s)
        for one in found:
            self.sent.append((self.now_s, one))
            self.count += 1
            if one.leg is not None:
                heapq.heappush(self.ends, (max(one.leg.predicted_s, self.now_s), self.count, one, one.account))
            else:
                heapq.heappush(self.ends, (self.now_s + GENERATES_S, self.count, one.ticket, one.account))
        return found

    def until(self, time_s: float) -> None:
        while True:
            due_s = min(self.ends[0][0] if self.ends else float("inf"), self.dispatcher.next_s)
            if due_s > time_s:
                break
            self.now_s = max(self.now_s, due_s)
            if self.ends and self.ends[0][0] <= self.now_s:
                self._end(*heapq.heappop(self.ends)[2:])
            self.pump()
        self.now_s = time_s

    def _end(self, what: Assignment | Ticket, account: Account) -> None:
        if isinstance(what, Ticket):
            self.dispatcher.decode_ended(account, what.tokens)
            return
        assert what.leg is not None
        self.dispatcher.prefill_ended(account, what.leg, now_s=self.now_s, served=True)
        chosen = self.dispatcher.generate(what.ticket, account, self.now_s)
        if chosen is not None:
            self.count += 1
            heapq.heappush(self.ends, (self.now_s + GENERATES_S, self.count, what.ticket, chosen))

    def sent_at(self, ticket: Ticket) -> float:
        return next(at_s for at_s, one in self.sent if one.ticket is ticket)


def cluster(prefill: int = 2, decode: int = 2, settings: PlacementSettings = SETTINGS) -> Cluster:
    found = Cluster(Dispatcher(settings))
    for number in range(prefill):
        found.worker(f"p{number}", names.ROLE_PREFILL)
    for number in range(decode):
        found.worker(f"d{number}", names.ROLE_DECODE)
    return found


LOADS = st.lists(
    st.tuples(
        st.floats(0, 0.3), st.integers(1, 9000), st.sampled_from(["a", "b"]), st.integers(0, 3), st.integers(0, 12)
    ),
    min_size=1,
    max_size=40,
)
"""Requests: how long after the one before, tokens, tenant, group of the prefix, its blocks."""


def run(load: list[tuple[float, int, str, int, int]], found: Cluster) -> list[Ticket]:
    tickets = []
    for gap_s, tokens, tenant, group, blocks in load:
        found.until(found.now_s + gap_s)
        hashes = tuple(hash((group, index)) for index in range(min(blocks, tokens // 256)))
        tickets.append(found.offer(tokens, tenant=tenant, hashes=hashes, block_tokens=256))
    found.until(found.now_s + 10_000)
    return tickets


@given(LOADS, st.integers(1, 4), st.integers(1, 3), st.booleans())
@settings(max_examples=60)
def test_everything_is_placed_once_and_nothing_stays_behind(
    load: list[tuple[float, int, str, int, int]], prefill: int, decode: int, deflects: bool
) -> None:
    found = cluster(prefill, decode, DEFLECTING if deflects else SETTINGS)
    tickets = run(load, found)
    assert sorted(one.ticket.number for _, one in found.sent) == sorted(one.number for one in tickets)
    assert (found.dispatcher.queued, found.dispatcher.queued_tokens) == (0, 0)
    for account in found.accounts.values():
        left = (account.prefills_in_flight, account.pending_prefill_tokens, account.decodes_in_flight)
        assert (*left, account.decode_context_tokens, account.held_s) == (0, 0, 0, 0, 0.0)
        assert (account.now_batch.count, account.following.count) == (0, 0)


@given(LOADS, st.integers(1, 4))
@settings(max_examples=60)
def test_no_worker_idles_while_a_prompt_waits_that_it_would_do_sooner(
    load: list[tuple[float, int, str, int, int]], prefill: int
) -> None:
    found = cluster(prefill)
    for gap_s, tokens, tenant, _, _ in load:
        found.until(found.now_s + gap_s)
        found.offer(tokens, tenant=tenant)
        idle = [one for one in found.accounts.values() if one.takes_prompts and one.idle]
        assert not idle or not found.dispatcher.queued, "prompts without prefixes wait for nobody in particular"


@given(LOADS)
@settings(max_examples=60)
def test_whoever_has_waited_for_the_age_is_overtaken_by_none_that_came_later(
    load: list[tuple[float, int, str, int, int]],
) -> None:
    found = cluster(1)
    for gap_s, tokens, tenant, _, _ in load:
        found.until(found.now_s + gap_s / 4)
        found.offer(tokens, tenant=tenant)
    found.until(found.now_s + 10_000)
    for at_s, one in found.sent:
        overtaken = [
            other
            for other_at_s, other in found.sent
            if other_at_s > at_s
            and other.ticket.arrived_s < one.ticket.arrived_s
            and at_s - other.ticket.arrived_s >= AGE_S
        ]
        assert at_s - one.ticket.arrived_s >= AGE_S or not overtaken


@given(LOADS, st.randoms(use_true_random=False))
@settings(max_examples=40)
def test_the_order_in_which_workers_are_told_of_makes_no_difference_to_how_they_are_used(
    load: list[tuple[float, int, str, int, int]], shuffler: random.Random
) -> None:
    waits = []
    for shuffled in (False, True):
        found = Cluster(Dispatcher(SETTINGS))
        workers = [(f"p{n}", names.ROLE_PREFILL) for n in range(3)] + [(f"d{n}", names.ROLE_DECODE) for n in range(2)]
        if shuffled:
            shuffler.shuffle(workers)
        for name, role in workers:
            found.worker(name, role)
        run([(gap_s, tokens, tenant, 0, 0) for gap_s, tokens, tenant, _, _ in load], found)
        waits.append([(round(at_s, 9), one.ticket.number) for at_s, one in found.sent])
    assert waits[0] == waits[1]


CHANGES = st.lists(
    st.tuples(
        st.integers(0, 4),
        st.sampled_from([names.ROLE_PREFILL, names.ROLE_DECODE, names.ROLE_DRAINING, ""]),
        st.booleans(),
        st.integers(1, 5000),
    ),
    max_size=40,
)


@given(CHANGES)
@settings(max_examples=80)
def test_nobody_out_of_rotation_gets_anything_whatever_changes(changes: list[tuple[int, str, bool, int]]) -> None:
    found = cluster(3, 2, DEFLECTING)
    accounts = list(found.accounts)
    for number, role, in_rotation, tokens in changes:
        found.until(found.now_s + 0.05)
        found.worker(accounts[number], role, in_rotation=in_rotation)
        before = len(found.sent)
        found.offer(tokens, hashes=tuple(range(tokens // 256)), block_tokens=256)
        for _, one in found.sent[before:]:
            assert one.account.in_rotation
            assert one.account.role in (names.ROLE_PREFILL, names.ROLE_DECODE)
            assert one.leg is None or one.account.role == names.ROLE_PREFILL
            hosts = found.dispatcher.roster.hosts(one.account, most=4)
            assert all(found.accounts[host].in_rotation for host in hosts)
            assert len(set(hosts)) == len(hosts)
        serving = any(one.takes_prompts or one.generates for one in found.accounts.values())
        assert serving == found.dispatcher.serving


def test_a_new_worker_gets_what_waits() -> None:
    found = cluster(1)
    for _ in range(6):
        found.offer(2000)
    assert found.dispatcher.queued == 5
    found.worker("new", names.ROLE_PREFILL)
    assert [one.account.worker for one in found.pump()] == ["new"]


def test_the_next_prompt_comes_before_the_worker_is_idle() -> None:
    found = cluster(1)
    found.offer(2000)
    second = found.offer(2000)
    found.until(1.0)
    (_, first), _ = found.sent
    assert first.leg is not None
    assert 0 < first.leg.predicted_s - found.sent_at(second) < 0.05


def test_a_short_prompt_overtakes_a_long_one_but_not_for_ever() -> None:
    found = cluster(1)
    found.offer(2000)
    long = found.offer(40_000)
    short = found.offer(10)
    found.until(100.0)
    assert found.sent_at(short) < found.sent_at(long)


def test_a_conversation_comes_back_to_the_worker_that_has_it() -> None:
    found = cluster(2)
    hashes = tuple(range(30))
    first = found.offer(8000, hashes=hashes, block_tokens=256)
    found.until(60.0)
    again = found.offer(8200, hashes=(*hashes, 30, 31), block_tokens=256)
    found.until(120.0)
    assert [one.account.worker for _, one in found.sent if one.ticket in (first, again)] == ["p0", "p0"]


def test_a_failed_worker_is_not_tried_again_and_comes_last_for_others() -> None:
    found = cluster(2)
    ticket = found.offer(100)
    _, sent = found.sent[-1]
    assert sent.leg is not None
    found.ends.clear()
    found.dispatcher.prefill_ended(sent.account, sent.leg, now_s=0.0, served=False, at_fault=True)
    ticket.failed |= {sent.account.worker}
    found.dispatcher.offer(ticket, 0.0)
    (again,) = found.pump()
    assert again.account is not sent.account
    found.offer(100)
    assert found.dispatcher.queued == 1, "it waits for the good worker rather than go to the one at fault"


def test_without_a_prefill_worker_left_one_worker_serves_it_whole() -> None:
    found = cluster(1)
    ticket = Ticket(0, 100, arrived_s=0.0)
    ticket.failed = frozenset({"p0"})
    found.dispatcher.offer(ticket, 0.0)
    (sent,) = found.pump()
    assert (sent.leg, sent.account.role) == (None, names.ROLE_DECODE)


def test_only_workers_of_one_generation_share_a_request() -> None:
    found = Cluster(Dispatcher(SETTINGS))
    found.worker("old", names.ROLE_PREFILL, generation="1")
    found.worker("new", names.ROLE_PREFILL, generation="2")
    found.worker("decode", names.ROLE_DECODE, generation="2")
    for _ in range(4):
        found.offer(1000)
    found.until(10.0)
    assert {one.account.worker for _, one in found.sent} == {"new"}
    found.worker("new", names.ROLE_PREFILL, in_rotation=False)
    found.offer(1000)
    assert found.sent[-1][1].why == "no prefill and decode worker are of one generation"


def test_tenants_share_the_workers_however_much_each_asks_for() -> None:
    found = cluster(1)
    found.offer(2000)
    for _ in range(40):
        found.offer(2000, tenant="greedy")
    modest = [found.offer(2000, tenant="modest") for _ in range(4)]
    found.until(4.0)
    assert all(any(one.ticket is ticket for _, one in found.sent) for ticket in modest)


def test_classes_of_higher_priority_go_first() -> None:
    classes = (RequestClass(), RequestClass(name="batch", priority=-1), RequestClass(name="urgent", priority=1))
    found = cluster(1, settings=PlacementSettings(classes=classes))
    found.offer(2000)
    batch, standard, urgent = (found.offer(1000, kind=kind) for kind in ("batch", "none", "urgent"))
    found.until(60.0)
    assert found.sent_at(urgent) <= found.sent_at(standard) <= found.sent_at(batch)


def test_a_short_prompt_is_deflected_when_prefill_is_busy_and_a_long_one_is_not() -> None:
    found = cluster(1, 1, DEFLECTING)
    for _ in range(20):
        found.accounts["d0"].decode_sent(500)
    found.dispatcher.roster.rank(found.accounts["d0"])
    tickets = [found.offer(tokens) for tokens in (60_000, 100, 50_000)]
    deflected = {one.ticket for _, one in found.sent if one.deflected}
    assert deflected == {tickets[1]}


def test_no_limits_mean_no_deflection() -> None:
    found = cluster(1, 1)
    found.offer(60_000)
    found.offer(100)
    assert not any(one.deflected for _, one in found.sent)


def test_a_prefill_worker_keeps_a_request_when_decode_is_full() -> None:
    found = cluster(1, 1, DEFLECTING)
    found.accounts["d0"].reported(in_flight=None, kv_usage=0.99, now_s=0.0)
    found.dispatcher.roster.rank(found.accounts["d0"])
    found.offer(1000)
    _, sent = found.sent[-1]
    assert (sent.account.worker, sent.leg) == ("p0", None)


def test_prefill_workers_share_what_they_keep() -> None:
    found = cluster(2, 1, DEFLECTING)
    for _ in range(2):  # legs under way must not hide what is kept
        found.offer(1000)
    found.accounts["d0"].reported(in_flight=None, kv_usage=0.99, now_s=0.0)
    found.dispatcher.roster.rank(found.accounts["d0"])
    for _ in range(40):
        found.offer(1000)
    kept = [sent.account.worker for _, sent in found.sent if sent.leg is None]
    assert len(kept) <= 2, "the others wait until a worker is nearly free"
    found.until(5.0)
    kept = [sent.account.worker for _, sent in found.sent if sent.leg is None]
    assert abs(kept.count("p0") - kept.count("p1")) <= 2
    assert min(kept.count("p0"), kept.count("p1")) >= 5


def test_what_is_withdrawn_leaves_nothing() -> None:
    found = cluster(1)
    found.offer(2000)
    tickets = [found.offer(100, tenant=str(number)) for number in range(5)]
    tickets.append(found.offer(100, whole_because=""))
    for ticket in tickets:
        found.dispatcher.withdraw(ticket)
    assert (found.dispatcher.queued, found.dispatcher.queued_tokens) == (0, 0)
    found.until(10.0)
    assert len(found.sent) == 1
