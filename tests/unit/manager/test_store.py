"""The store: events, lists and answers in any order end in the newest state."""

import random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from swingpool.kube import Object
from swingpool.kube.kinds import DEPLOYMENT, INFERENCE_CLUSTER, POD
from swingpool.manager.store import Key, Store
from swingpool_control import names

KEY = Key("ns", "chat")


def pod(version: int, *, name: str = "p", uid: str = "u", cluster: str = "chat", **more: Any) -> Object:
    labels = {names.LABEL_CLUSTER: cluster}
    return {
        "metadata": {"namespace": "ns", "name": name, "uid": uid, "resourceVersion": str(version), "labels": labels},
        **more,
    }


def quiet() -> Store:
    return Store(lambda kind, obj: None)


def test_an_older_version_changes_nothing_and_is_not_told() -> None:
    told: list[str] = []
    store = Store(lambda kind, obj: told.append(obj["metadata"]["resourceVersion"]))
    for version in (5, 7, 6, 7):
        store.upsert(POD, pod(version))
    assert told == ["5", "7"]
    assert store.of_cluster(POD, KEY)[0]["metadata"]["resourceVersion"] == "7"


def test_what_is_deleted_does_not_come_back_by_a_late_event() -> None:
    store = quiet()
    store.upsert(POD, pod(5))
    store.remove(POD, pod(8))
    store.upsert(POD, pod(6))
    assert store.of_cluster(POD, KEY) == []
    store.upsert(POD, pod(9, uid="another"))
    assert len(store.of_cluster(POD, KEY)) == 1


def test_a_list_ends_what_it_lacks_but_not_what_is_newer() -> None:
    store = quiet()
    store.upsert(POD, pod(5, name="old", uid="1"))
    store.upsert(POD, pod(20, name="new", uid="2"))
    store.replace(POD, [pod(9, name="listed", uid="3")], resource_version="10", namespace=None)
    assert [obj["metadata"]["name"] for obj in store.of_cluster(POD, KEY)] == ["listed", "new"]


def test_a_list_of_one_namespace_says_nothing_of_others() -> None:
    store = quiet()
    store.upsert(POD, pod(5))
    store.replace(POD, [], resource_version="10", namespace="elsewhere")
    assert len(store.all(POD)) == 1
    store.replace(POD, [], resource_version="10", namespace="ns")
    assert store.all(POD) == []


def test_an_object_that_changes_its_cluster_leaves_the_old_one() -> None:
    store = quiet()
    store.upsert(POD, pod(5))
    store.upsert(POD, pod(6, cluster="other"))
    assert store.of_cluster(POD, KEY) == []
    assert len(store.of_cluster(POD, Key("ns", "other"))) == 1


def test_managed_fields_stay_only_where_they_are_read() -> None:
    store = quiet()
    obj = pod(5)
    obj["metadata"]["managedFields"] = [{"manager": "x"}]
    store.upsert(POD, obj)
    store.upsert(DEPLOYMENT, obj)
    assert "managedFields" not in store.of_cluster(POD, KEY)[0]["metadata"]
    assert "managedFields" in store.of_cluster(DEPLOYMENT, KEY)[0]["metadata"]


def test_a_cluster_is_found_by_its_own_name() -> None:
    store = quiet()
    cluster = {"kind": names.KIND, "metadata": {"namespace": "ns", "name": "chat", "uid": "u", "resourceVersion": "3"}}
    store.upsert(INFERENCE_CLUSTER, cluster)
    assert store.of_cluster(INFERENCE_CLUSTER, KEY) == [cluster]


def test_memory_returns_to_nothing() -> None:
    store = quiet()
    for number in range(1000):
        store.upsert(POD, pod(2 * number + 1, name=f"p{number}", uid=str(number)))
        store.remove(POD, pod(2 * number + 2, name=f"p{number}", uid=str(number)))
    store.forget_deletions(before=10_000)
    assert store.all(POD) == []
    assert vars(store)["_by_cluster"] == {}
    assert vars(store)["_deleted"] == {}


@given(st.integers(1, 12), st.booleans(), st.randoms(use_true_random=False))
def test_any_order_of_news_ends_in_the_same_state(versions: int, deleted: bool, rng: random.Random) -> None:
    store = quiet()
    news = [("upsert", version) for version in range(1, versions + 1)] + ([("remove", versions + 1)] if deleted else [])
    rng.shuffle(news)
    for what, version in news:
        getattr(store, what)(POD, pod(version))
    found = [obj["metadata"]["resourceVersion"] for obj in store.all(POD)]
    assert found == ([] if deleted else [str(versions)])
