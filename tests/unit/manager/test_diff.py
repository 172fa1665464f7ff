"""Whether a child is as asked for: what the server adds is not drift, what others change is."""

import copy
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from swingpool.manager.diff import MISSING, desired_hash, differences, project, with_hash
from swingpool_control import names

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text("abcd", min_size=1, max_size=2), inner, max_size=3)
    ),
    max_leaves=12,
)
OBJECT = st.dictionaries(st.text("abcd", min_size=1, max_size=2), JSON, max_size=4)


def changed(desired: dict[str, Any], live: dict[str, Any]) -> list[str]:
    return list(differences(project(desired, desired), project(desired, live)))


@given(OBJECT)
def test_an_object_has_what_it_has(obj: dict[str, Any]) -> None:
    assert changed(obj, copy.deepcopy(obj)) == []


@given(OBJECT, OBJECT)
def test_what_the_server_adds_at_places_that_nobody_named_is_no_difference(
    obj: dict[str, Any], more: dict[str, Any]
) -> None:
    assert changed(obj, {**more, **obj}) == []


@given(OBJECT)
def test_null_and_empty_count_as_nothing(obj: dict[str, Any]) -> None:
    live = {key: value for key, value in obj.items() if value not in (None, {}, [])}
    assert changed(obj, live) == []


@given(OBJECT, st.data())
def test_any_scalar_that_changes_is_found(obj: dict[str, Any], data: st.DataObject) -> None:
    scalars = [key for key, value in obj.items() if isinstance(value, bool | int | str)]
    if not scalars:
        return
    key = data.draw(st.sampled_from(scalars))
    assert changed(obj, {**obj, key: "something else"}) == [key]
    assert changed(obj, {other: value for other, value in obj.items() if other != key}) == [key]


def test_a_merged_list_is_compared_item_by_item() -> None:
    desired: dict[str, Any] = {
        "containers": [{"name": "a", "image": "x:1", "ports": [{"containerPort": 80}]}, {"name": "b", "image": "y"}]
    }
    live: dict[str, Any] = {
        "containers": [
            {"name": "injected", "image": "sidecar"},
            {"name": "b", "image": "y", "terminationMessagePath": "/dev/log"},
            {"name": "a", "image": "x:1", "ports": [{"containerPort": 80, "protocol": "TCP"}]},
        ]
    }
    assert changed(desired, live) == []
    live["containers"][2]["image"] = "evil"
    assert changed(desired, live) == ["containers[a].image"]
    del live["containers"][1]
    assert changed(desired, live) == ["containers[a].image", "containers[b]"]


def test_a_list_that_is_one_value_may_not_grow() -> None:
    desired: dict[str, Any] = {"subjects": [{"kind": "ServiceAccount", "name": "router"}], "args": ["--a"]}
    assert changed(
        desired, {"subjects": [*desired["subjects"], {"kind": "User", "name": "mallory"}], "args": ["--a"]}
    ) == ["subjects"]
    assert changed(desired, {"subjects": desired["subjects"], "args": ["--a", "--b"]}) == ["args"]


def test_what_is_not_there_is_missing_as_a_whole() -> None:
    assert project({"a": {"b": 1}}, {}) == {"a": MISSING}
    assert project({"a": {"b": 1}}, None) == MISSING


@given(OBJECT)
def test_the_hash_is_of_the_content(obj: dict[str, Any]) -> None:
    reordered = dict(reversed(list(obj.items())))
    assert desired_hash(obj) == desired_hash(reordered)
    assert desired_hash(obj) != desired_hash({**obj, "zz": 1})


def test_the_hash_stands_beside_other_annotations_and_changes_no_argument() -> None:
    manifest = {"kind": "X", "metadata": {"name": "x", "annotations": {"a": "b"}}}
    before = copy.deepcopy(manifest)
    annotations = with_hash(manifest)["metadata"]["annotations"]
    assert manifest == before
    assert annotations == {"a": "b", names.ANNOTATION_DESIRED_HASH: desired_hash(manifest)}
