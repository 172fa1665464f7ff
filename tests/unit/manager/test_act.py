"""The patch of a worker: what it tests, what it changes, what it leaves alone."""

from dataclasses import replace
from typing import Any, cast

import pytest

from swingpool.kube import KubeError, Object
from swingpool.kube.kinds import POD
from swingpool.manager.act import Actor, worker_patch
from swingpool.manager.engine_calls import EngineCalls
from swingpool.manager.events import Recorder
from swingpool.manager.metrics import Metrics
from swingpool.manager.store import Store
from swingpool.manager.writes import Writes
from swingpool_control import names
from swingpool_control.actions import PatchWorker
from swingpool_control.api.v1alpha1 import InferenceClusterSpec

ROLE_PATH = "/metadata/labels/swingpool.dev~1role"


def pod(*, labels: dict[str, str] | None = None, annotations: dict[str, str] | None = None) -> Object:
    metadata: dict[str, Any] = {
        "name": "p",
        "uid": "u",
        "labels": {names.LABEL_ROLE: "decode"} if labels is None else labels,
    }
    if annotations:
        metadata["annotations"] = annotations
    return {"metadata": metadata}


def action(**more: Any) -> PatchWorker:
    return PatchWorker(**{"pod": "p", "uid": "u", "expected_role": "decode", "reason": "why", **more})


def test_a_flip_tests_pod_and_role_before_it_changes_both_maps() -> None:
    operations = worker_patch(
        pod(annotations={"a": "b"}),
        action(labels={names.LABEL_ROLE: "prefill"}, annotations={names.ANNOTATION_FLIP: "{}"}),
    )
    assert operations == [
        {"op": "test", "path": "/metadata/uid", "value": "u"},
        {"op": "test", "path": ROLE_PATH, "value": "decode"},
        {"op": "add", "path": ROLE_PATH, "value": "prefill"},
        {"op": "add", "path": "/metadata/annotations/swingpool.dev~1flip", "value": "{}"},
    ]


def test_a_map_that_is_not_there_is_made_whole_and_only_if_it_still_is_not_there() -> None:
    operations = worker_patch(pod(), action(annotations={"a/b": "c", "gone": None}))
    assert operations[2:] == [
        {"op": "test", "path": "/metadata/annotations", "value": None},
        {"op": "add", "path": "/metadata/annotations", "value": {"a/b": "c"}},
    ]


def test_only_what_is_there_is_removed() -> None:
    operations = worker_patch(pod(annotations={"here~": "x"}), action(annotations={"here~": None, "absent": None}))
    assert operations[2:] == [{"op": "remove", "path": "/metadata/annotations/here~0"}]
    assert worker_patch(pod(), action(annotations={"absent": None}))[2:] == []


def test_a_worker_without_a_role_is_expected_to_have_none() -> None:
    operations = worker_patch(pod(labels={"x": "y"}), action(expected_role="", labels={names.LABEL_ROLE: "decode"}))
    assert operations[1] == {"op": "test", "path": ROLE_PATH, "value": None}
    bare = worker_patch(pod(labels={}), action(expected_role="", labels={names.LABEL_ROLE: "decode"}))
    assert bare[1:] == [
        {"op": "test", "path": "/metadata/labels", "value": None},
        {"op": "add", "path": "/metadata/labels", "value": {names.LABEL_ROLE: "decode"}},
    ]


class Refusing:
    """A client for writes whose every patch fails."""

    def __init__(self, status: int | None) -> None:
        self.status = status

    async def json_patch(self, *_: Any, **__: Any) -> Object:
        raise KubeError(status=self.status, reason="R", message="m")


@pytest.mark.parametrize(
    ("status", "refused", "uncertain"),
    [(None, False, True), (500, False, True), (504, False, True), (422, True, False), (409, True, False),
     (403, False, False), (429, False, False)],
)  # fmt: skip
async def test_what_became_of_a_patch_that_failed(status: int | None, *, refused: bool, uncertain: bool) -> None:
    store = Store(lambda kind, obj: None)
    store.upsert(POD, {"metadata": {"namespace": "ns", "name": "p", "uid": "u", "resourceVersion": "1"}})
    actor = Actor(
        writes=cast(Writes, Refusing(status)),
        store=store,
        recorder=cast(Recorder, None),
        metrics=Metrics(),
        engines=EngineCalls(),
    )
    cluster: Object = {"metadata": {"namespace": "ns", "name": "chat"}}
    change = replace(action(), labels={names.LABEL_ROLE: "prefill"})
    outcome = await actor.carry_out(cluster, cast(InferenceClusterSpec, None), [change])
    assert (outcome.failed, bool(outcome.refused), bool(outcome.uncertain)) == (1, refused, uncertain)
    outcome = await actor.carry_out(cluster, cast(InferenceClusterSpec, None), [action(annotations={"a": None})])
    assert outcome.uncertain == (), "its role stays what it is, whatever became of the write"
