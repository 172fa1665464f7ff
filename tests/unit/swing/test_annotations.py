"""Annotations and labels that a user wrote: whatever they say, a round goes on and the status can be written."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swingpool_control import names
from swingpool_control.api.status import InferenceClusterStatus
from swingpool_control.conditions import status as statuses
from swingpool_control.sizing import drain
from swingpool_control.sizing.memory import SizingMemory
from swingpool_control.sizing.step import step as size
from swingpool_control.swing import flip
from swingpool_control.swing.memory import SwingMemory
from swingpool_control.swing.step import step as swing
from tests.unit.swing.fleet import T0, Fleet, spec

GOOD = {
    "from": "decode",
    "to": "prefill",
    "decidedUnixS": T0,
    "phase": "switched",
    "phaseSinceUnixS": T0,
    "reason": "test",
}
NONSENSE = [
    {"from": {}, "to": []},
    {"from": ["decode"]},
    {"decidedUnixS": 10**400},
    {"decidedUnixS": 1e15},
    {"phaseSinceUnixS": -5.0},
    {"decidedUnixS": "NaN"},
    {"to": "decode"},
    {"phase": {}},
]


@pytest.mark.parametrize("change", NONSENSE, ids=str)
def test_a_flip_that_makes_no_sense_is_no_flip(change: dict[str, object]) -> None:
    assert flip.parse(json.dumps(GOOD)) is not None
    assert flip.parse(json.dumps(GOOD | change)) is None


def test_deep_nesting_is_no_flip_and_a_drain_without_a_time() -> None:
    assert flip.parse("[" * 100_000) is None
    found = drain.parse("[" * 100_000, default_role="decode")
    assert found is not None
    assert found.since_unix_s == 0.0
    found = drain.parse('{"role": "decode", "sinceUnixS": 1' + "0" * 400 + "}", default_role="decode")
    assert found is not None
    assert found.since_unix_s == 0.0


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=4), inner, max_size=2),
    max_leaves=4,
)
edits = st.dictionaries(st.sampled_from(sorted([*GOOD, "role", "sinceUnixS"])), values, max_size=3)


@given(
    flipped=edits,
    drained=st.none() | edits,
    role=st.sampled_from(["", "decode", "prefill", "draining", "boss"]),
    known=st.booleans(),
)
def test_whatever_a_user_writes_loops_and_status_go_on(
    flipped: dict[str, object], drained: dict[str, object] | None, role: str, *, known: bool
) -> None:
    fleet = Fleet(spec())
    fleet.router_known = known
    pod = fleet.pod("swing-3")
    pod.flip = json.dumps(GOOD | flipped)
    pod.drain = "" if drained is None else json.dumps({"role": "decode", "sinceUnixS": T0} | drained)
    pod.role = role
    memory = SwingMemory()
    for _ in range(3):
        swung = swing(fleet.view(), memory, now_unix_s=fleet.now)
        memory = swung.memory
        size(fleet.view(), SizingMemory(), now_unix_s=fleet.now)
        fleet.status = statuses.build(fleet.view(), plan=None, flips=swung.flips, now_unix_s=fleet.now)
        written = fleet.status.model_dump(mode="json", by_alias=True, exclude_none=True)
        assert InferenceClusterStatus.model_validate(written) == fleet.status
        fleet.run(1.0, dt=0.5)


def test_a_reason_that_a_user_made_long_fits_the_status() -> None:
    fleet = Fleet(spec())
    pod = fleet.pod("swing-3")
    pod.flip, pod.role = json.dumps(GOOD | {"reason": "x" * 100_000}), names.ROLE_PREFILL
    found = swing(fleet.view(), SwingMemory(), now_unix_s=fleet.now).flips
    assert [len(record.reason) for record in found] == [flip.MAX_REASON]
