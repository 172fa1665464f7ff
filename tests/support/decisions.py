"""Decisions of both loops while a load turns: flips are begun and end, replicas grow."""

from typing import Any

from swingpool_control.api.status import InferenceClusterStatus
from swingpool_control.replay.decision import Decision, SizingDecision, SwingDecision
from swingpool_control.sizing.memory import SizingMemory
from swingpool_control.sizing.step import step as size
from swingpool_control.swing.memory import SwingMemory
from swingpool_control.swing.step import step as swing
from tests.unit.swing.fleet import Fleet, spec


def decisions(*, mode: str = "Auto", seconds: int = 25) -> list[Decision]:
    """Return what both loops decide, one of each a second."""
    pools: list[dict[str, Any]] = [
        {"name": "prefill", "role": "Prefill"},
        {"name": "decode", "role": "Decode"},
        {"name": "swing", "role": "Swing", "replicas": {"min": 2, "max": 4}},
    ]
    fleet = Fleet(spec(pools, scaling={"mode": mode}))
    swing_memory, sizing_memory = SwingMemory(), SizingMemory()
    found: list[Decision] = []
    for second in range(seconds):
        for _ in range(9 if second > 3 else 0):
            fleet.arrive(*((1800, 24) if second < 14 else (150, 240)))
        fleet.run(1.0, dt=0.1)
        view = fleet.view()
        sized = size(view, sizing_memory, now_unix_s=fleet.now)
        found.append(SizingDecision(view=view, memory=sizing_memory, now_unix_s=fleet.now, result=sized))
        fleet.apply(sized.actions)
        view = fleet.view()
        swung = swing(view, swing_memory, now_unix_s=fleet.now)
        found.append(SwingDecision(view=view, memory=swing_memory, now_unix_s=fleet.now, result=swung))
        fleet.apply(swung.actions)
        swing_memory, sizing_memory = swung.memory, sized.memory
        fleet.status = InferenceClusterStatus(flips=swung.flips, plan=sized.plan)
        fleet.router_known = second % 7 != 5
    return found
