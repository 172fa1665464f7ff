"""Every status that the models can build is one that the real API server takes, and keeps to the last field."""

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from e2e.cluster.controlplane import ControlPlane
from swingpool_control.api import status as api
from tests.support.inference_clusters import COLLECTION, Refusal, changed, create, smallest, update

ROLE = st.sampled_from(["prefill", "decode", "draining"])
COUNT = st.integers(0, 1_000_000)
GENERATION = st.none() | st.integers(0, 2**53)
TIME = st.datetimes().filter(lambda at: at.year >= 1000).map(lambda at: at.isoformat(timespec="microseconds") + "Z")


def _built(model: type[BaseModel], **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.fixed_dictionaries(fields).map(lambda values: model(**values))


def _text(longest: int, *, shortest: int = 0) -> st.SearchStrategy[str]:
    return st.text(min_size=shortest, max_size=min(longest, 40)) | st.just("é" * longest)


def _unique(items: st.SearchStrategy[Any], key: str, most: int) -> st.SearchStrategy[Any]:
    return st.lists(items, max_size=min(most, 4), unique_by=lambda item: getattr(item, key))


CONDITION = _built(
    api.Condition,
    type=_text(316, shortest=1),
    status=st.sampled_from(["True", "False", "Unknown"]),
    observed_generation=GENERATION,
    last_transition_time=TIME,
    reason=_text(1024, shortest=1),
    message=_text(2000),
)
POOL = _built(
    api.PoolStatus,
    name=_text(63),
    role=st.sampled_from(["Prefill", "Decode", "Swing"]),
    **dict.fromkeys(("desired", "current", "ready", "prefill", "decode", "draining", "unschedulable"), COUNT),
)
PLAN = _built(
    api.Plan,
    at=TIME,
    pools=_unique(_built(api.PlannedPool, name=_text(63), replicas=COUNT), "name", 16),
    prefill_workers=COUNT,
    decode_workers=COUNT,
    binding=_text(256),
    reasons=st.lists(_built(api.Reason, code=_text(63), message=_text(1024)), max_size=3),
    observed=st.lists(_built(api.ObservedFigure, name=_text(63), value=_text(256)), max_size=3),
)
FLIP = _built(
    api.FlipRecord,
    worker=_text(253),
    from_=ROLE,
    to=ROLE,
    decided_at=TIME,
    serving_at=st.none() | TIME,
    outcome=st.sampled_from(["InProgress", "Serving", "Aborted", "WorkerLost"]),
    reason=_text(1024),
)
STATUS = _built(
    api.InferenceClusterStatus,
    observed_generation=GENERATION,
    conditions=_unique(CONDITION, "type", 32),
    pools=_unique(POOL, "name", 16),
    workers=_text(32),
    roles=_text(64),
    endpoint=_text(512),
    plan=st.none() | PLAN,
    flips=st.lists(FLIP, max_size=20),
)


@pytest.fixture(scope="module")
def existing(plane: ControlPlane) -> Iterator[dict[str, Any]]:
    """A resource that exists."""
    created = create(plane, changed(smallest(), metadata__name="told"), dry_run=False)
    assert not isinstance(created, Refusal), created.message
    yield created
    plane.api.call("DELETE", f"{COLLECTION}/told")


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(status=STATUS)
def test_every_status_is_taken_and_kept(
    plane: ControlPlane, existing: dict[str, Any], status: api.InferenceClusterStatus
) -> None:
    written = status.model_dump(mode="json", by_alias=True, exclude_none=True)
    answer = update(plane, {**existing, "status": written}, subresource="/status")
    assert not isinstance(answer, Refusal), answer.message
    assert api.InferenceClusterStatus.model_validate(answer.get("status", {})) == status
    assert answer["metadata"]["generation"] == existing["metadata"]["generation"]
