"""Whatever happens, in whatever order: the last ready worker of each role stays, and every flip ends in a record."""

import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swingpool_control import names
from swingpool_control.actions import PatchWorker
from swingpool_control.api.status import InferenceClusterStatus
from swingpool_control.sizing.memory import SizingMemory
from swingpool_control.sizing.step import step as size
from swingpool_control.swing import flip
from swingpool_control.swing.memory import SwingMemory
from swingpool_control.swing.step import step as swing
from tests.unit.swing.fleet import Fleet, Pod, spec

EVENTS = (
    "prompts",
    "generation",
    "crash",
    "delete",
    "heal",
    "blind",
    "sight",
    "restart manager",
    "lose half a step",
    "relabel",
    "garble",
    "scale",
    "quiet",
)

POOLS: list[dict[str, Any]] = [
    {"name": "prefill", "role": "Prefill", "replicas": {"min": 1, "max": 2}},
    {"name": "decode", "role": "Decode", "replicas": {"min": 1, "max": 2}},
    {"name": "swing", "role": "Swing", "replicas": {"min": 1, "max": 4}},
]
EXTERNAL = {"type": "External", "external": {"roleLabels": {"key": "llm-d.ai/role"}}}


class Chaos:
    """A manager whose steps are cut short, and a fleet to which anything happens."""

    def __init__(self, seed: int, *, external: bool) -> None:
        parts: dict[str, Any] = {"scaling": {"stabilization": {"scaleDownWindow": "20s", "minRoleDuration": "3s"}}}
        if external:
            parts["router"] = EXTERNAL
        parts["engine"] = {"type": "Simulated", "maxRequestDuration": "40s"}
        self.fleet = Fleet(spec(POOLS, **parts), start_s=3.0)
        self.swing_memory, self.sizing_memory = SwingMemory(), SizingMemory()
        self.rng = random.Random(seed)
        self.cut = False

    def happen(self, event: str) -> None:
        fleet = self.fleet
        alive = [pod for pod in fleet.pods if not pod.deleting]
        match event:
            case "prompts" | "generation":
                for _ in range(30):
                    fleet.arrive(*((1800, 10) if event == "prompts" else (50, 400)))
            case "heal":
                for pod in fleet.pods:
                    pod.waiting, pod.in_rotation = "", True
            case "blind" | "sight":
                fleet.router_known = event == "sight"
            case "restart manager":
                self.swing_memory, self.sizing_memory = SwingMemory(), SizingMemory()
            case "lose half a step":
                self.cut = True
            case "scale":
                fleet.replicas["swing"] = self.rng.randrange(1, 5)
                fleet.reconcile()
            case _ if alive:
                self.hurt(event, self.rng.choice(alive))

    def hurt(self, event: str, pod: Pod) -> None:
        match event:
            case "crash":
                pod.ready, pod.created = False, self.fleet.now
                pod.prefills.clear()
                pod.decodes.clear()
            case "delete":
                pod.deleting = True
                self.fleet.reconcile()
            case "relabel":
                pod.role = self.rng.choice(["prefill", "decode", "draining", ""])
            case "garble":
                pod.flip = self.rng.choice(["", "{", '{"from": 1}', "null"])

    def decide(self) -> None:
        self.fleet.guard()
        sized = size(self.fleet.view(), self.sizing_memory, now_unix_s=self.fleet.now)
        self.carry_out(sized.actions)
        swung = swing(self.fleet.view(), self.swing_memory, now_unix_s=self.fleet.now)
        self.carry_out(swung.actions)
        if self.cut:
            self.swing_memory, self.sizing_memory, self.cut = SwingMemory(), SizingMemory(), False
            return
        self.swing_memory, self.sizing_memory = swung.memory, sized.memory
        self.fleet.status = InferenceClusterStatus(flips=list(swung.flips))

    def carry_out(self, actions: tuple[Any, ...]) -> None:
        """A manager that is killed in the middle has carried out the first of its actions, and keeps no memory."""
        kept = self.rng.randrange(len(actions) + 1) if self.cut else len(actions)
        self.fleet.apply(actions[:kept])

    def run(self, seconds: int) -> None:
        for _ in range(seconds):
            self.fleet.run(1.0, dt=0.5)
            self.decide()


@pytest.mark.parametrize("seed", range(16))
def test_no_decision_takes_the_last_worker_of_a_role(seed: int) -> None:
    rng = random.Random(seed)
    external = seed % 4 == 3
    chaos = Chaos(seed, external=external)
    chaos.fleet.router_known = not external
    chaos.run(2)
    for _ in range(rng.randrange(25)):
        event = rng.choice(EVENTS)
        if not (external and event == "sight"):
            chaos.happen(event)
        chaos.run(rng.randrange(7))
    settle(chaos, external=external)


def settle(chaos: Chaos, *, external: bool) -> None:
    """Left alone, everything comes to rest: roles are valid, nothing is half done, and there is nothing to write."""
    fleet = chaos.fleet
    chaos.happen("heal")
    if not external:
        chaos.happen("sight")
    fleet.queue.clear()
    chaos.run(150)
    for pod in fleet.pods:
        home = {"prefill": {"prefill"}, "decode": {"decode"}, "swing": {"prefill", "decode"}}[pod.pool]
        assert pod.role in home
        assert not pod.drain
        assert pod.cost == 0
        state = flip.parse(pod.flip)
        assert state is None if external else (state is None or state.phase is flip.Phase.SWITCHED)
    assert fleet.serving(names.ROLE_PREFILL)
    assert fleet.serving(names.ROLE_DECODE)
    assert swing(fleet.view(), chaos.swing_memory, now_unix_s=fleet.now).actions == ()
    assert size(fleet.view(), chaos.sizing_memory, now_unix_s=fleet.now).actions == ()


@given(
    st.text(max_size=60) | st.builds(json.dumps, st.dictionaries(st.sampled_from(["from", "to", "phase"]), st.text()))
)
def test_any_text_is_a_flip_or_none(text: str) -> None:
    assert flip.parse(text) is None


@given(
    to_prefill=st.booleans(),
    decided=st.floats(0, 4e9),
    phase=st.sampled_from(flip.Phase),
    reason=st.text(max_size=100),
)
def test_a_flip_reads_back_as_it_was_written(to_prefill: bool, decided: float, phase: flip.Phase, reason: str) -> None:
    roles = ("decode", "prefill") if to_prefill else ("prefill", "decode")
    written = flip.Flip(
        from_role=roles[0],
        to_role=roles[1],
        decided_unix_s=round(decided, 3),
        phase=phase,
        phase_since_unix_s=round(decided, 3),
        reason=reason,
    )
    assert flip.parse(written.to_json()) == written


@pytest.mark.parametrize("stop_after", range(6))
def test_an_external_flip_is_carried_on_by_a_new_manager_from_any_point(stop_after: int) -> None:
    fleet = Fleet(spec(router=EXTERNAL, engine={"type": "Simulated", "maxRequestDuration": "20s"}))
    fleet.router_known = False
    fleet.pod("prefill-1").ready = False
    fleet.pod("prefill-1").waiting = "CrashLoopBackOff"
    memory, labels = SwingMemory(), []
    for second in range(60):
        fleet.guard()
        result = swing(fleet.view(), memory, now_unix_s=fleet.now)
        fleet.apply(result.actions)
        labels += [action.labels for action in result.actions if isinstance(action, PatchWorker) and action.labels]
        memory = SwingMemory() if second == stop_after * 5 else result.memory
        fleet.status = InferenceClusterStatus(flips=list(result.flips))
        fleet.run(1.0, dt=0.5)
    assert labels == [
        {"llm-d.ai/role": "draining", names.LABEL_ROLE: "draining"},
        {"llm-d.ai/role": "prefill", names.LABEL_ROLE: "prefill"},
    ]
    [record] = fleet.status.flips
    assert (record.outcome, record.serving_at) == ("Serving", None)
    assert all(not pod.flip for pod in fleet.pods)
