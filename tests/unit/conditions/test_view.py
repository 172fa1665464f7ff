"""From raw objects to the view: what is missing, odd or broken still makes a view, or a clear error."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swingpool_control import names
from swingpool_control.conditions.view import InvalidSpecError, build, parse_status
from swingpool_control.figures import Unknown
from swingpool_control.view import ClusterView

SPEC: dict[str, Any] = {
    "model": {"name": "demo"},
    "objectives": {"ttft": {"p95": "1s"}, "itl": {"p95": "40ms"}},
    "pools": [{"name": "prefill", "role": "Prefill"}, {"name": "decode", "role": "Decode"}],
}


def cluster(**parts: Any) -> dict[str, Any]:
    metadata = {"namespace": "default", "name": "chat", "uid": "u", "generation": 3}
    return {"metadata": metadata, "spec": SPEC} | parts


def pod(name: str = "chat-decode-x", *, status: dict[str, Any] | None = None, **metadata: Any) -> dict[str, Any]:
    labels = {
        names.LABEL_CLUSTER: "chat",
        names.LABEL_POOL: "decode",
        names.LABEL_ROLE: "decode",
        names.LABEL_COMPONENT: names.COMPONENT_WORKER,
    }
    base = {"name": name, "uid": f"uid-{name}", "labels": labels, "creationTimestamp": "2026-01-02T03:04:05Z"}
    return {"metadata": base | metadata, "status": status or {}}


def deployment(pool: str = "decode", **parts: Any) -> dict[str, Any]:
    labels = {names.LABEL_CLUSTER: "chat", names.LABEL_POOL: pool, names.LABEL_COMPONENT: names.COMPONENT_WORKER}
    return {"metadata": {"name": f"chat-{pool}", "generation": 2, "labels": labels}, "spec": {"replicas": 2}} | parts


def view(*, pods: list[dict[str, Any]] | None = None, deployments: list[dict[str, Any]] | None = None) -> ClusterView:
    return build(cluster=cluster(), deployments=deployments or [], pods=pods or [], router=Unknown("none"), models={})


def condition(kind: str, status: str, **more: str) -> dict[str, Any]:
    return {"conditions": [{"type": kind, "status": status, **more}]}


def test_a_cluster_without_children_has_pools_that_do_not_exist() -> None:
    seen = view()
    assert [(pool.pool, pool.exists, pool.replicas) for pool in seen.pools] == [
        ("prefill", False, 0),
        ("decode", False, 0),
    ]
    assert not seen.router_ready
    assert seen.generation == 3


def test_a_ready_worker() -> None:
    [worker] = view(pods=[pod(status=condition("Ready", "True"))]).workers
    assert (worker.pool, worker.role, worker.ready, worker.deleting) == ("decode", "decode", True, False)
    assert worker.created_unix_s == 1767323045.0


def test_annotations_are_taken_as_they_are_and_bad_costs_are_zero() -> None:
    annotations = {names.ANNOTATION_FLIP: "{", names.ANNOTATION_DELETION_COST: "cheap"}
    [worker] = view(pods=[pod(annotations=annotations)]).workers
    assert (worker.flip, worker.deletion_cost) == ("{", 0)


def test_a_pod_that_no_node_takes() -> None:
    status = condition("PodScheduled", "False", reason="Unschedulable", message="0/2 nodes are available")
    [worker] = view(pods=[pod(status=status)]).workers
    assert worker.unschedulable == "0/2 nodes are available"


@pytest.mark.parametrize(
    ("reason", "told"), [("ImagePullBackOff", "ImagePullBackOff"), ("ContainerCreating", ""), (None, "")]
)
def test_why_a_container_waits(reason: str | None, told: str) -> None:
    state = {"waiting": {"reason": reason}} if reason else {"running": {}}
    [worker] = view(pods=[pod(status={"containerStatuses": [{"state": state, "restartCount": 4}]})]).workers
    assert (worker.waiting, worker.restarts) == (told, 4)


def test_pods_that_ended_and_router_pods_are_no_workers() -> None:
    router = pod("chat-router-x", status=condition("Ready", "True"))
    router["metadata"]["labels"] = {names.LABEL_COMPONENT: names.COMPONENT_ROUTER}
    seen = view(pods=[pod(status={"phase": "Failed"}), router])
    assert seen.workers == ()
    assert seen.router_ready


def test_a_failure_reads_the_same_whichever_pod_was_tried() -> None:
    texts = {
        view(
            deployments=[
                deployment(
                    status=condition(
                        "ReplicaFailure", "True", message=f'pods "chat-decode-{tail}" is forbidden: exceeded quota: q'
                    )
                )
            ]
        )
        .pools[1]
        .failure
        for tail in ("abcde", "fghij")
    }
    assert texts == {"pods is forbidden: exceeded quota: q"}


@pytest.mark.parametrize(
    ("strategy", "surge"),
    [
        ({"type": "Recreate"}, 0),
        ({"rollingUpdate": {"maxSurge": 1}}, 1),
        ({"rollingUpdate": {"maxSurge": "30%"}}, 1),
        ({}, 1),
    ],
)
def test_surge(strategy: dict[str, Any], surge: int) -> None:
    seen = view(deployments=[deployment(spec={"replicas": 2, "strategy": strategy})])
    assert seen.pools[1].surge == surge


def test_a_foreign_scaler_is_seen_by_its_field_manager() -> None:
    raw = deployment()
    fields: dict[str, Any] = {"f:spec": {"f:replicas": {}}}
    others: dict[str, Any] = {"f:spec": {"f:template": {}}}
    raw["metadata"]["managedFields"] = [
        {"manager": names.FIELD_MANAGER_REPLICAS, "fieldsV1": others},
        {"manager": "kubectl", "fieldsV1": fields},
    ]
    assert view(deployments=[raw]).pools[1].foreign_scaler == "kubectl"
    raw["metadata"]["managedFields"][0]["fieldsV1"] = fields
    assert view(deployments=[raw]).pools[1].foreign_scaler == "", "we have said the same since"


def test_a_deployment_that_was_not_looked_at_yet() -> None:
    assert not view(deployments=[deployment(status={"observedGeneration": 1})]).pools[1].observed
    assert view(deployments=[deployment(status={"observedGeneration": 2})]).pools[1].observed


def test_a_spec_that_cannot_be_used_names_the_field() -> None:
    spec = SPEC | {"pools": [{"name": "x", "role": "Prefil"}]}
    with pytest.raises(InvalidSpecError, match=r"spec\.pools\[0\]\.role: .*'Prefill'"):
        build(cluster=cluster(spec=spec), deployments=[], pods=[], router=Unknown("none"), models={})


def test_a_status_of_another_version_is_no_status() -> None:
    assert parse_status({"status": {"phase": "Running"}}).conditions in ((), [])


@given(annotation=st.text(max_size=40), phase=st.sampled_from(["Pending", "Running", "Unknown"]))
def test_any_annotation_makes_a_view(annotation: str, phase: str) -> None:
    marks = dict.fromkeys((names.ANNOTATION_FLIP, names.ANNOTATION_DRAIN, names.ANNOTATION_DELETION_COST), annotation)
    [worker] = view(pods=[pod(annotations=marks, status={"phase": phase})]).workers
    assert worker.flip == worker.drain == annotation


def test_a_number_beyond_all_bounds_is_cut() -> None:
    found = view(deployments=[deployment(spec={"replicas": 2**31 - 1})])
    assert {pool.pool: pool.replicas for pool in found.pools}["decode"] == 20_000
