"""Merging a user's pod template: theirs wins where it may, ours stays where the manager depends on it."""

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swingpool_control.resources.pod_template import PodTemplateError, merge

BASE: dict[str, Any] = {
    "metadata": {"labels": {"swingpool.dev/role": "decode", "swingpool.dev/pool": "d"}},
    "spec": {
        "nodeSelector": {"gpu": "a"},
        "tolerations": [{"key": "gpu", "operator": "Exists"}],
        "containers": [
            {
                "name": "worker",
                "image": "vllm:1",
                "command": ["vllm"],
                "args": ["--port", "8000"],
                "env": [{"name": "POD_IP", "value": "x"}, {"name": "HOME", "value": "/home"}],
                "ports": [{"name": "http", "containerPort": 8000}],
                "resources": {"limits": {"gpu": "1"}},
                "volumeMounts": [{"name": "cache", "mountPath": "/models"}],
            }
        ],
        "volumes": [{"name": "cache", "emptyDir": {}}],
    },
}


def _merged(override: Any) -> dict[str, Any]:
    return merge(BASE, override, field="spec.pools[d].podTemplate", container="worker", owned_environment=("POD_IP",))


def _container(override: dict[str, Any]) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": "worker"} | override]}}


@pytest.mark.parametrize("nothing", [None, {}, {"metadata": {}}, {"spec": {}}, {"spec": {"containers": []}}])
def test_nothing_changes_nothing(nothing: Any) -> None:
    assert _merged(nothing) == BASE


def test_maps_merge_and_scalars_are_replaced() -> None:
    spec = _merged({"spec": {"nodeSelector": {"zone": "b"}, "priorityClassName": "high"}})["spec"]
    assert spec["nodeSelector"] == {"gpu": "a", "zone": "b"}
    assert spec["priorityClassName"] == "high"


def test_labels_and_annotations_are_added() -> None:
    metadata = _merged({"metadata": {"labels": {"team": "x"}, "annotations": {"note": "y"}}})["metadata"]
    assert metadata == {"labels": BASE["metadata"]["labels"] | {"team": "x"}, "annotations": {"note": "y"}}


def test_containers_merge_by_name_and_others_join() -> None:
    containers = _merged(
        {"spec": {"containers": [{"name": "worker", "command": ["python3"]}, {"name": "log", "image": "l"}]}}
    )["spec"]["containers"]
    assert [item["name"] for item in containers] == ["worker", "log"]
    assert containers[0] == BASE["spec"]["containers"][0] | {"command": ["python3"]}


def test_items_of_a_container_merge_by_their_key() -> None:
    (worker,) = _merged(
        _container(
            {
                "env": [{"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}],
                "ports": [{"name": "extra", "containerPort": 9000}],
                "resources": {"requests": {"cpu": "4"}},
                "volumeMounts": [{"name": "cache", "mountPath": "/models", "readOnly": True}],
            }
        )
    )["spec"]["containers"]
    assert [item["name"] for item in worker["env"]] == ["POD_IP", "HOME", "TOKEN"]
    assert [item["containerPort"] for item in worker["ports"]] == [8000, 9000]
    assert worker["resources"] == {"limits": {"gpu": "1"}, "requests": {"cpu": "4"}}
    assert worker["volumeMounts"] == [{"name": "cache", "mountPath": "/models", "readOnly": True}]


def test_a_volume_or_variable_of_ours_is_replaced_whole() -> None:
    merged = _merged(
        {
            "spec": {
                "volumes": [{"name": "cache", "nfs": {"server": "s", "path": "/"}}],
                "containers": [{"name": "worker", "env": [{"name": "HOME", "valueFrom": {"fieldRef": {}}}]}],
            }
        }
    )
    assert merged["spec"]["volumes"] == [{"name": "cache", "nfs": {"server": "s", "path": "/"}}]
    assert merged["spec"]["containers"][0]["env"][1] == {"name": "HOME", "valueFrom": {"fieldRef": {}}}


def test_tolerations_add_up() -> None:
    added = {"key": "spot", "operator": "Exists"}
    override = {"spec": {"tolerations": [added, {"key": "gpu", "operator": "Exists"}]}}
    assert _merged(override)["spec"]["tolerations"] == [{"key": "gpu", "operator": "Exists"}, added]


def test_null_and_patch_delete_remove() -> None:
    override = {"spec": {"nodeSelector": None, "volumes": [{"name": "cache", "$patch": "delete"}]}}
    spec = _merged(override)["spec"]
    assert "nodeSelector" not in spec
    assert spec["volumes"] == []


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ({"kind": "Pod"}, r"kind: unknown; a pod template has `metadata` and `spec`"),
        ({"metadata": {"name": "x"}}, r"metadata\.name: remove it"),
        ({"metadata": {"labels": {"swingpool.dev/role": "prefill"}}}, r"labels\.swingpool\.dev/role: remove it"),
        ({"metadata": {"labels": {"swingpool.dev/else": "x"}}}, r"labels\.swingpool\.dev/else: remove it"),
        ({"metadata": {"annotations": {"swingpool.dev/flip": ""}}}, r"annotations\.swingpool\.dev/flip: remove it"),
        (
            {"metadata": {"annotations": {"controller.kubernetes.io/pod-deletion-cost": "1"}}},
            r"pod-deletion-cost: remove it",
        ),
        ({"metadata": None}, r"metadata: must be a map"),
        ({"metadata": {"labels": None}}, r"labels: must be a map"),
        ({"spec": None}, r"spec: must be a map"),
        ({"spec": {"containers": None}}, r"containers: must be a list"),
        ({"spec": {"containers": "x"}}, r"containers: must be a list"),
        ({"spec": {"containers": [{"image": "x"}]}}, r"containers\[0\]: must be a map with the field 'name'"),
        ({"spec": {"containers": [{"name": "worker", "$patch": "delete"}]}}, r"'worker' must stay"),
        ({"spec": {"nodeSelector": "x"}}, r"nodeSelector: must be a map"),
        ({"spec": {"nodeSelector": ["x"]}}, r"nodeSelector: must be a map"),
        ({"spec": {"tolerations": {"key": "x"}}}, r"tolerations: must be no map"),
        ({"spec": {"tolerations": "x"}}, r"tolerations: must be a list"),
        (_container({"args": []}), r"containers\[0\]\.args: remove it; .*extraArguments"),
        (_container({"image": ["x"]}), r"image: must be no list"),
        (_container({"ports": [{"containerPort": 8000}]}), r"ports\[0\]: remove it"),
        (_container({"ports": None}), r"ports: must be a list"),
        (_container({"env": [{"name": "POD_IP", "value": "y"}]}), r"env\[0\]: remove POD_IP"),
        (_container({"env": "x"}), r"env: must be a list"),
    ],
)
def test_what_the_operator_depends_on_is_refused_with_field_and_remedy(override: dict[str, Any], message: str) -> None:
    with pytest.raises(PodTemplateError, match=rf"^spec\.pools\[d\]\.podTemplate\.?.*{message}"):
        _merged(override)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["name", "containers", "env", "ports", "labels", "x", "$patch"]), inner, max_size=3
        )
    ),
    max_leaves=8,
)


@given(
    override=st.dictionaries(st.sampled_from(["metadata", "spec"]), _JSON)
    | st.fixed_dictionaries({"spec": st.dictionaries(st.sampled_from(sorted(BASE["spec"])), _JSON)})
    | st.lists(_JSON, max_size=2).map(lambda items: {"spec": {"containers": items}})
)
def test_any_override_is_merged_or_refused_and_never_takes_what_is_ours(override: dict[str, Any]) -> None:
    before = copy.deepcopy((BASE, override))
    try:
        merged = _merged(override)
    except PodTemplateError:
        merged = BASE
    assert (BASE, override) == before
    assert BASE["metadata"]["labels"].items() <= merged["metadata"]["labels"].items()
    (worker,) = [item for item in merged["spec"]["containers"] if item["name"] == "worker"]
    assert worker["args"] == ["--port", "8000"]
    assert {"name": "http", "containerPort": 8000} in worker["ports"]
    assert {"name": "POD_IP", "value": "x"} in worker["env"]


_TOLERATIONS = st.lists(
    st.fixed_dictionaries({"key": st.sampled_from(["gpu", "spot"])}, optional={"operator": st.just("Exists")})
)


@given(
    override=st.fixed_dictionaries(
        {},
        optional={
            "nodeSelector": st.none()
            | st.dictionaries(st.sampled_from(["gpu", "zone"]), st.none() | st.text(max_size=2)),
            "tolerations": st.none() | _TOLERATIONS,
            "priorityClassName": st.text(max_size=2),
        },
    )
)
def test_merging_twice_is_merging_once(override: dict[str, Any]) -> None:
    once = _merged({"spec": override})
    assert merge(once, {"spec": override}, field="f", container="worker", owned_environment=("POD_IP",)) == once
