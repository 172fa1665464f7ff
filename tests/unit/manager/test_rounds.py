"""Rounds: what fails stops nothing else, what cannot be used changes nothing, what is gone is forgotten."""

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import pytest
from prometheus_client import generate_latest

from swingpool.kube import KubeError, Object
from swingpool.kube.kinds import DEPLOYMENT, INFERENCE_CLUSTER, POD
from swingpool.manager.act import Actor, Outcome
from swingpool.manager.decisions import Decisions
from swingpool.manager.events import Recorder
from swingpool.manager.lease import NotLeadingError
from swingpool.manager.metrics import Metrics
from swingpool.manager.profiles import Profiles
from swingpool.manager.prometheus_poll import PrometheusPoll
from swingpool.manager.reconcile import BlockedError, Reconciler
from swingpool.manager.rounds import TOLD_AFTER_FAILURES, UNCERTAIN_S, Periods, Rounds
from swingpool.manager.router_poll import RouterPoll
from swingpool.manager.store import Key, Store
from swingpool.manager.worker_poll import WorkerPoll
from swingpool.manager.writes import Writes
from swingpool_control.actions import Action
from swingpool_control.figures import Unknown
from swingpool_control.sizing import step as sizing
from swingpool_control.sizing.memory import SizingMemory, SizingResult
from swingpool_control.swing import step as swing
from swingpool_control.swing.memory import SwingMemory, SwingResult
from swingpool_control.view import ClusterView

KEY = Key("ns", "chat")
SPEC: Object = {
    "model": {"name": "m"},
    "objectives": {"ttft": {"p95": "1s"}, "itl": {"p95": "50ms"}},
    "engine": {"type": "Simulated"},
    "pools": [{"name": "prefill", "role": "Prefill"}, {"name": "decode", "role": "Decode"}],
}


@dataclass
class Part:
    """Stands for a part of a round: counts its calls, and fails as told."""

    failure: Exception | None = None
    calls: int = 0

    def called(self) -> None:
        self.calls += 1
        if self.failure:
            raise self.failure


@dataclass
class World:
    """Rounds over a real store, with fakes for all that talks."""

    now: float = 1_800_000_000.0
    children: Part = field(default_factory=Part)
    status: Part = field(default_factory=Part)
    forgotten: list[Key] = field(default_factory=list)
    statuses: list[Object] = field(default_factory=list)
    acted: int = 0
    outcome: Outcome = field(default_factory=Outcome)
    version: int = 100

    def __post_init__(self) -> None:
        self.store = Store(lambda kind, obj: None)
        self.rounds = Rounds(
            store=self.store,
            reconciler=cast(Reconciler, self),
            actor=cast(Actor, self),
            writes=cast(Writes, self),
            routers=cast(RouterPoll, self),
            workers=cast(WorkerPoll, self),
            prometheus=cast(PrometheusPoll, self),
            profiles=cast(Profiles, self),
            decisions=Decisions(),
            metrics=Metrics(),
            periods=Periods(),
            monotonic=lambda: self.now,
            now_unix_s=lambda: self.now,
            memories={},
        )

    @property
    def recorder(self) -> Recorder:
        return cast(Recorder, self)

    def put(self, *, generation: int = 1, uid: str = "u", spec: Object | None = None, **metadata: Any) -> None:
        self.version += 1
        known = self.store.get(INFERENCE_CLUSTER, *KEY) or {}
        head = {
            "namespace": "ns",
            "name": "chat",
            "uid": uid,
            "generation": generation,
            "resourceVersion": str(self.version),
        }
        obj: Object = {"metadata": {**head, **metadata}, "spec": spec or SPEC}
        if "status" in known:
            obj["status"] = known["status"]
        self.store.upsert(INFERENCE_CLUSTER, obj)
        self.rounds.touch(KEY, INFERENCE_CLUSTER, obj)

    async def round(self) -> float | None:
        return await self.rounds.round(KEY)

    def condition(self, kind: str) -> Object:
        found = [one for one in self.statuses[-1]["conditions"] if one["type"] == kind]
        return cast(Object, found[0])

    async def reconcile(self, *_: Any) -> None:
        self.children.called()

    async def observe(self, key: Key, pods: Sequence[Object]) -> Unknown:
        return Unknown("no router in this test")

    async def models(self, *_: Any) -> dict[str, Any]:
        return {}

    async def carry_out(self, cluster: Object, spec: Any, actions: Sequence[Action]) -> Outcome:
        self.acted += 1
        return self.outcome

    async def apply_status(self, manifest: Object) -> Object:
        self.status.called()
        self.version += 1
        self.statuses.append(manifest["status"])
        obj = copy.deepcopy(self.store.get(INFERENCE_CLUSTER, *KEY) or {})
        obj["status"] = manifest["status"]
        obj["metadata"]["resourceVersion"] = str(self.version)
        self.store.upsert(INFERENCE_CLUSTER, obj)
        return obj

    def forget(self, key: Key) -> None:
        self.forgotten.append(key)


async def test_nothing_to_change_is_no_write() -> None:
    world = World()
    world.put()
    assert await world.round() == pytest.approx(1.0)
    for _ in range(400):  # until it is told, once, that the router shows nothing
        world.now += 1
        await world.round()
    settled = len(world.statuses)
    for _ in range(600):
        world.now += 1
        await world.round()
    assert len(world.statuses) == settled
    assert world.children.calls <= 5, "children are compared when something changed, and from time to time"


async def test_a_spec_that_cannot_be_used_is_told_and_the_last_good_one_goes_on() -> None:
    world = World()
    world.put()
    await world.round()
    pools, acted = world.statuses[-1]["pools"], world.acted
    world.put(generation=2, spec={**SPEC, "surprise": 1})
    world.now += 1
    await world.round()
    assert world.condition("Ready")["reason"] == "InvalidSpec"
    assert "surprise" in world.condition("Degraded")["message"]
    assert world.statuses[-1]["pools"] == pools
    assert world.children.calls == 1
    assert world.acted > acted
    world.put(generation=3)
    world.now += 1
    await world.round()
    assert world.children.calls == 2
    assert world.condition("Degraded")["status"] == "False"


async def test_a_spec_that_was_never_usable_is_only_told() -> None:
    world = World()
    world.put(spec={"pools": []})
    await world.round()
    assert world.condition("Ready")["reason"] == "InvalidSpec"
    assert (world.children.calls, world.acted) == (0, 0)


async def test_children_that_cannot_be_made_stop_no_other_part_and_are_tried_again() -> None:
    world = World()
    world.children.failure = BlockedError("Service x: Forbidden: no")
    world.put()
    await world.round()
    assert "Service x: Forbidden" in world.condition("Degraded")["message"]
    assert world.acted > 0
    world.children.failure = None
    world.now += 30
    await world.round()
    assert world.condition("Degraded")["status"] == "False"


@pytest.mark.parametrize(
    ("failure", "told"),
    [
        (BlockedError("webhook away", transient=True), True),
        (KubeError(status=None, reason="ConnectError", message="refused"), False),
    ],
)
async def test_passing_trouble_is_told_only_if_it_lasts_and_silence_never(failure: Exception, *, told: bool) -> None:
    world = World()
    world.children.failure = failure
    world.put()
    for attempt in range(1, TOLD_AFTER_FAILURES + 2):
        await world.round()
        told_now = told and attempt >= TOLD_AFTER_FAILURES
        assert (world.condition("Degraded")["status"] == "True") == told_now
        world.now += 31


async def test_a_status_that_cannot_be_written_delays_no_decision() -> None:
    world = World()
    world.status.failure = KubeError(status=422, reason="Invalid", message="old schema")
    world.put()
    for _ in range(20):
        acted = world.acted
        assert await world.round() == pytest.approx(1.0, abs=0.1)
        assert world.acted > acted
        world.now += 1
    assert world.status.calls < 10, "and is tried again ever more slowly"


async def test_a_cluster_that_is_gone_is_forgotten() -> None:
    world = World()
    world.put()
    await world.round()
    world.put(deletionTimestamp="now")
    assert await world.round() is None
    assert world.rounds.memories == {}
    assert world.forgotten == [KEY] * 5, "router, workers, Prometheus, profiles and events"


async def test_a_new_cluster_of_the_same_name_starts_anew() -> None:
    world = World()
    world.put()
    await world.round()
    world.put(uid="another")
    await world.round()
    assert world.rounds.memories[KEY].uid == "another"
    assert world.children.calls == 2


async def test_a_round_without_the_lease_ends() -> None:
    world = World()
    world.status.failure = NotLeadingError("not ours")
    world.put()
    with pytest.raises(NotLeadingError):
        await world.round()


async def test_only_what_can_matter_has_children_compared() -> None:
    world = World()
    world.put()
    await world.round()
    memory = world.rounds.memories[KEY]
    for kind, dirty in ((POD, False), (INFERENCE_CLUSTER, False), (DEPLOYMENT, True)):
        memory.children.at = world.now + 100
        world.rounds.touch(KEY, kind, {"metadata": {"generation": 1}})
        assert memory.children.now(world.now) == dirty
    memory.children.at = world.now + 100
    world.rounds.touch(KEY, INFERENCE_CLUSTER, {"metadata": {"generation": 2}})
    assert memory.children.now(world.now)


async def test_a_child_that_is_refused_in_ever_new_words_is_tried_again_with_backoff() -> None:
    """Each status that is written is news of the cluster: it must not have its children tried again at once."""
    world = World()
    world.put()
    for number in range(100):
        world.children.failure = BlockedError(f"Service x: refused, request {number}")
        await world.round()
        stored = world.store.get(INFERENCE_CLUSTER, *KEY)
        assert stored is not None
        world.rounds.touch(KEY, INFERENCE_CLUSTER, stored)
        world.now += 0.1
    assert world.children.calls < 10


async def test_who_only_waits_is_not_degraded() -> None:
    world = World()
    world.children.failure = BlockedError("pool old is kept", transient=True, waits=True)
    world.put()
    for _ in range(TOLD_AFTER_FAILURES + 3):
        await world.round()
        world.now += 31
    assert world.condition("Degraded")["status"] == "False"
    assert world.condition("Ready")["reason"] == "Applying"


async def test_a_change_that_was_not_answered_makes_its_worker_uncertain_for_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[frozenset[str]] = []
    decide = swing.step

    def spy(view: ClusterView, memory: SwingMemory, *, now_unix_s: float) -> SwingResult:
        seen.append(view.uncertain)
        return decide(view, memory, now_unix_s=now_unix_s)

    monkeypatch.setattr(swing, "step", spy)
    world = World(outcome=Outcome(uncertain=("u-1",), failed=1))
    world.put()
    await world.round()  # sizing's write is in doubt before swing decides
    world.outcome = Outcome()
    for wait_s in (1.0, UNCERTAIN_S):
        world.now += wait_s
        await world.round()
    assert seen == [frozenset({"u-1"}), frozenset({"u-1"}), frozenset()]


async def test_a_spec_that_changes_in_a_round_is_sized_in_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    world.put()
    await world.round()
    original = world.observe

    async def observe(key: Key, pods: Sequence[Object]) -> Unknown:
        world.put(generation=3)
        return await original(key, pods)

    world.put(generation=2)
    monkeypatch.setattr(world, "observe", observe)
    await world.round()
    assert world.rounds.memories[KEY].sized_generation == 2
    assert world.statuses[-1]["observedGeneration"] == 2
    monkeypatch.setattr(world, "observe", original)
    await world.round()
    assert world.rounds.memories[KEY].sized_generation == 3
    assert world.statuses[-1]["observedGeneration"] == 3


async def test_a_fault_in_one_loop_stops_neither_the_other_nor_the_status(monkeypatch: pytest.MonkeyPatch) -> None:
    def fault(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError

    world = World()
    world.put()
    monkeypatch.setattr(sizing, "step", fault)
    for _ in range(10):
        acted = world.acted
        assert await world.round() is not None
        assert world.acted > acted, "roles are decided"
        world.now += 1
    assert world.statuses
    text = generate_latest(world.rounds.metrics.registry).decode()
    (line,) = [line for line in text.splitlines() if line.startswith("swingpool_manager_faults_total{")]
    assert 1 <= float(line.rsplit(" ", 1)[1]) < 10, "and sizing is tried again ever more slowly"


async def test_sizing_is_as_rare_as_it_was_set(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    world.rounds = replace(world.rounds, periods=Periods(sizing_s=60.0))
    decide, calls = sizing.step, 0

    def spy(view: ClusterView, memory: SizingMemory, *, now_unix_s: float) -> SizingResult:
        nonlocal calls
        calls += 1
        return decide(view, memory, now_unix_s=now_unix_s)

    monkeypatch.setattr(sizing, "step", spy)
    world.put()
    for _ in range(125):
        await world.round()
        world.now += 1
    assert calls == 3
