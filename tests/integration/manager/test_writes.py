"""Single writes against a real API server: what a patch tests, and what a number of replicas lives through."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from swingpool.kube import Kube, KubeError, Object
from swingpool.kube.kinds import DEPLOYMENT, POD
from swingpool.manager import replicas
from swingpool.manager.act import worker_patch
from swingpool.manager.lease import Leadership
from swingpool.manager.store import Store
from swingpool.manager.writes import Writes
from swingpool_control import names
from swingpool_control.actions import PatchWorker
from tests.support.manager_stand import Place


@pytest.fixture
def writes(kube: Kube, leading: Leadership) -> Writes:
    return Writes(kube, leading, Store(lambda kind, obj: None))


def deployment(here: Place, name: str, image: str = "a:1") -> Object:
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": image}]}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": here.namespace},
        "spec": {"selector": {"matchLabels": labels}, "template": template},
    }


@pytest.mark.parametrize("number", [0, 1, 4])
async def test_a_number_survives_creation_and_every_new_template(here: Place, writes: Writes, number: int) -> None:
    name = f"created-{number}"
    live = await replicas.create(writes, deployment(here, name), number)
    assert live["spec"]["replicas"] == number
    assert not replicas.owned_by_template(live)
    live = await replicas.apply_template(writes, deployment(here, name, "b:2"), live)
    assert (live["spec"]["replicas"], live["spec"]["template"]["spec"]["containers"][0]["image"]) == (number, "b:2")


@pytest.mark.parametrize("number", [0, 4])
async def test_a_number_survives_a_crash_in_the_middle_of_creation(here: Place, writes: Writes, number: int) -> None:
    manifest = deployment(here, f"crashed-{number}")
    # What stands there after the first of creation's three writes.
    live = await writes.apply({**manifest, "spec": {**manifest["spec"], "replicas": number}})
    assert replicas.owned_by_template(live)
    live = await replicas.apply_template(writes, manifest, live)
    assert live["spec"]["replicas"] == number
    assert not replicas.owned_by_template(live)


async def test_replicas_of_another_deployment_of_the_same_name_are_not_set(here: Place, writes: Writes) -> None:
    live = await replicas.create(writes, deployment(here, "replaced"), 1)
    stale = {**live, "metadata": {**live["metadata"], "uid": "another"}}
    with pytest.raises(KubeError) as refused:
        await replicas.set_replicas(writes, stale, 7)
    assert refused.value.invalid


@pytest.fixture
async def pod(here: Place, kube: Kube) -> AsyncIterator[Object]:
    manifest = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "worker", "namespace": here.namespace, "labels": {names.LABEL_ROLE: "decode"}},
        "spec": {"containers": [{"name": "c", "image": "a:1"}]},
    }
    yield await kube.create(manifest)
    await kube.delete(POD, "worker", namespace=here.namespace)


async def test_a_worker_changes_only_if_it_is_the_one_that_was_decided_on(here: Place, kube: Kube, pod: Object) -> None:
    async def patch(seen: Object, **more: Any) -> Object:
        plain: dict[str, Any] = {
            "pod": "worker",
            "uid": pod["metadata"]["uid"],
            "expected_role": "decode",
            "reason": "",
        }
        operations = worker_patch(seen, PatchWorker(**{**plain, **more}))
        return await kube.json_patch(POD, "worker", namespace=here.namespace, operations=operations, field_manager="x")

    for wrong in ({"uid": "another"}, {"expected_role": "prefill"}, {"expected_role": ""}):
        with pytest.raises(KubeError) as refused:
            await patch(pod, **wrong, labels={names.LABEL_ROLE: "prefill"})
        assert refused.value.invalid

    flipped = await patch(pod, labels={names.LABEL_ROLE: "prefill"}, annotations={names.ANNOTATION_FLIP: "{}"})
    assert flipped["metadata"]["labels"][names.LABEL_ROLE] == "prefill"
    assert flipped["metadata"]["annotations"] == {names.ANNOTATION_FLIP: "{}"}
    with pytest.raises(KubeError):  # seen before there were annotations: they must not be overwritten
        await patch(pod, expected_role="prefill", annotations={"other": "x"})
    cleared = await patch(
        flipped, expected_role="prefill", labels={names.LABEL_ROLE: None}, annotations={names.ANNOTATION_FLIP: None}
    )
    assert names.LABEL_ROLE not in cleared["metadata"].get("labels", {})
    assert "annotations" not in cleared["metadata"]
    labelled = await patch(cleared, expected_role="", labels={"a": "b"})
    repaired = await patch(labelled, expected_role="", labels={names.LABEL_ROLE: "decode"})
    assert repaired["metadata"]["labels"] == {"a": "b", names.LABEL_ROLE: "decode"}


async def test_what_does_not_exist_is_told_as_such(here: Place, kube: Kube) -> None:
    with pytest.raises(KubeError) as missing:
        await kube.get(DEPLOYMENT, "nothing", namespace=here.namespace)
    assert (missing.value.not_found, missing.value.transient) == (True, False)
