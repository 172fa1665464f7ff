"""Children of a cluster on a real API server: made, kept right, let alone, and gone in the end."""

import json
from typing import Any

from swingpool_control.conditions.view import parse_spec
from swingpool_control.resources.render import children
from swingpool_control.resources.settings import RenderSettings
from tests.support import inference_clusters
from tests.support.manager_stand import ManagerProcess, Place, make_ready
from tests.support.waiting import until

PREFILL = {"name": "prefill", "role": "Prefill", "replicas": {"min": 2, "max": 4}}
DECODE = {"name": "decode", "role": "Decode", "replicas": {"mode": "Fixed", "count": 3}}
SWING = {"name": "swing", "role": "Swing", "replicas": {"min": 0, "max": 4}}


def wanted(cluster: dict[str, Any]) -> set[tuple[str, str]]:
    metadata = cluster["metadata"]
    manifests = children(
        namespace=metadata["namespace"],
        name=metadata["name"],
        uid=metadata["uid"],
        spec=parse_spec(cluster),
        settings=RenderSettings(swingpool_image="swingpool:test"),
    )
    return {(manifest["kind"], manifest["metadata"]["name"]) for manifest in manifests}


def exist(here: Place, children: set[tuple[str, str]]) -> set[tuple[str, str]]:
    kinds = {kind for kind, _ in children}
    return children & {(kind, one["metadata"]["name"]) for kind in kinds for one in here.find(kind)}


def applied(here: Place, cluster: dict[str, Any]) -> bool:
    """Whether the manager has made this cluster's children and said so."""
    found = here.get("InferenceCluster", cluster["metadata"]["name"]) or {}
    generation = found["metadata"]["generation"]
    told = (found.get("status") or {}).get("observedGeneration") == generation
    return told and exist(here, wanted(found)) == wanted(found)


def rounds(running: ManagerProcess, cluster: str) -> float:
    return running.metric(f'swingpool_manager_rounds_total{{cluster="{cluster}"')


def drift_events(here: Place, cluster: str) -> list[str]:
    events = [one for one in here.find("Event") if one["involvedObject"]["name"] == cluster]
    return [one["message"] for one in events if one["reason"] == "DriftCorrected"]


def replicas(here: Place, deployment: str) -> int:
    found = here.get("Deployment", deployment)
    assert found is not None
    return int(found["spec"]["replicas"])


def scalers(here: Place, deployment: str) -> list[str]:
    """Who owns a Deployment's number of replicas."""
    found = here.get("Deployment", deployment)
    assert found is not None
    return [
        entry["manager"]
        for entry in found["metadata"]["managedFields"]
        if "f:replicas" in entry["fieldsV1"].get("f:spec", {})
    ]


def test_a_cluster_gets_all_its_children_and_then_nothing_is_written(
    here: Place, running: ManagerProcess, clusters: Any
) -> None:
    cluster = clusters("whole", PREFILL, DECODE, SWING)
    until("all children and a status", lambda: applied(here, cluster))
    assert [replicas(here, f"whole-{pool}") for pool in ("prefill", "decode", "swing")] == [2, 3, 0]
    until("deployments' status is settled", lambda: len(here.find("Pod", "swingpool.dev/cluster=whole")) == 6)
    assert here.condition("whole", "Ready")["status"] == "False"

    quiet_from = until("rounds", lambda: rounds(running, "whole"))
    until("rounds after the last change", lambda: rounds(running, "whole") >= quiet_from + 3)
    before, lists = here.writes(), running.metric('swingpool_manager_api_calls_total{kind="Pod"')
    seen = rounds(running, "whole")
    until("rounds, and full lists between them", lambda: (
        rounds(running, "whole") >= seen + 3
        and running.metric("swingpool_manager_api_calls_total{kind=\"Pod\"") >= lists + 2
    ))  # fmt: skip
    assert [(event.verb, event.uri) for event in here.writes()[len(before) :]] == []


def test_replicas_belong_to_the_scaler_and_a_new_template_leaves_them(
    here: Place, running: ManagerProcess, clusters: Any
) -> None:
    cluster = clusters("scaled", PREFILL, {**DECODE, "replicas": {"mode": "External"}})
    until("children", lambda: applied(here, cluster))
    assert scalers(here, "scaled-prefill") == ["swingpool-scaler"]
    here.merge("Deployment", "scaled-decode", {"spec": {"replicas": 5}}, subresource="/scale")
    here.merge("InferenceCluster", "scaled", {"spec": {"engine": {"image": "another:1"}}})

    def image(deployment: str) -> str:
        found = here.get("Deployment", deployment)
        assert found is not None
        return str(found["spec"]["template"]["spec"]["containers"][0]["image"])

    until("new image", lambda: {image("scaled-prefill"), image("scaled-decode")} == {"another:1"})
    assert (replicas(here, "scaled-prefill"), replicas(here, "scaled-decode")) == (2, 5)
    pools = [{**PREFILL, "replicas": {"mode": "External"}}, {**DECODE, "replicas": {"mode": "External"}}]
    here.merge("InferenceCluster", "scaled", {"spec": {"pools": pools}})
    until("applied", lambda: applied(here, cluster))
    assert (replicas(here, "scaled-prefill"), replicas(here, "scaled-decode")) == (2, 5)
    scaled = {e.name for e in here.writes() if e.field_manager == "swingpool-scaler" and e.name.startswith("scaled")}
    assert scaled == {"scaled-prefill"}
    assert drift_events(here, "scaled") == []


def test_drift_is_corrected_and_told(here: Place, running: ManagerProcess, clusters: Any) -> None:
    cluster = clusters("drifting", PREFILL, DECODE)
    until("children", lambda: applied(here, cluster))
    name = "drifting-prefill"
    containers = [{"op": "replace", "path": "/spec/template/spec/containers/0/image", "value": "evil:1"}]
    here.plane.api.call("PATCH", here.path("Deployment", name), containers, content_type="application/json-patch+json")
    here.delete("Service", "drifting-router")
    here.merge("ServiceAccount", "drifting-worker", {"metadata": {"labels": {"app.kubernetes.io/managed-by": "me"}}})
    told = until("three events", lambda: e if len(e := drift_events(here, "drifting")) == 3 else None)
    assert sorted(told) == [
        "Deployment drifting-prefill was changed at spec.template.spec.containers[worker].image; corrected",
        "Service drifting-router was deleted; created anew",
        "ServiceAccount drifting-worker was changed at metadata.labels.app.kubernetes.io/managed-by; corrected",
    ]
    deployment = here.get("Deployment", name)
    assert deployment is not None
    assert deployment["spec"]["template"]["spec"]["containers"][0]["image"] == "swingpool:test"
    assert here.get("Service", "drifting-router")
    assert running.metric('swingpool_manager_drift_corrections_total{cluster="drifting"') == 3


def test_what_others_add_beside_ours_stays(here: Place, running: ManagerProcess, clusters: Any) -> None:
    cluster = clusters("beside", PREFILL, DECODE)
    until("children", lambda: applied(here, cluster))
    here.merge("Deployment", "beside-decode", {"metadata": {"annotations": {"team": "a"}}})
    seen = rounds(running, "beside")
    until("rounds", lambda: rounds(running, "beside") >= seen + 3)
    deployment = here.get("Deployment", "beside-decode")
    assert deployment is not None
    assert deployment["metadata"]["annotations"]["team"] == "a"
    assert drift_events(here, "beside") == []


def test_what_the_spec_drops_is_deleted_and_nothing_else(here: Place, running: ManagerProcess, clusters: Any) -> None:
    cluster = clusters("pruned", PREFILL, DECODE, SWING)
    until("children", lambda: applied(here, cluster))
    labels = {"app.kubernetes.io/managed-by": "swingpool", "swingpool.dev/cluster": "pruned"}
    stranger = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "stranger", "labels": labels}}
    here.create("ConfigMap", stranger)
    here.merge("InferenceCluster", "pruned", {"spec": {"pools": [PREFILL, DECODE]}})
    gone = wanted(cluster) - wanted(here.get("InferenceCluster", "pruned") or {})
    assert gone == {("Deployment", "pruned-swing"), ("PodDisruptionBudget", "pruned-swing")}
    until("dropped children are gone", lambda: not exist(here, gone))
    assert here.get("ConfigMap", "stranger")
    assert here.get("Deployment", "pruned-decode")


def test_a_pool_that_alone_serves_a_role_is_kept_until_another_does(
    here: Place, running: ManagerProcess, clusters: Any
) -> None:
    cluster = clusters("renamed", PREFILL, DECODE)
    until("children", lambda: applied(here, cluster))
    until("pods", lambda: len(here.find("Pod", "swingpool.dev/cluster=renamed,swingpool.dev/pool")) == 5)
    for pod in here.find("Pod", "swingpool.dev/cluster=renamed,swingpool.dev/pool"):
        make_ready(here, pod["metadata"]["name"], address="127.0.0.1")
    here.merge("InferenceCluster", "renamed", {"spec": {"pools": [{**PREFILL, "name": "fresh"}, DECODE]}})
    fresh = until("the new pool's pods", lambda: here.find("Pod", "swingpool.dev/pool=fresh"))
    until("told", lambda: [
        one for one in here.find("Event")
        if one["reason"] == "PoolKept" and one["involvedObject"]["name"] == "renamed"
    ])  # fmt: skip
    old = here.get("Deployment", "renamed-prefill")
    assert old is not None
    assert "deletionTimestamp" not in old["metadata"]
    assert here.get("PodDisruptionBudget", "renamed-prefill")
    assert here.condition("renamed", "Degraded")["status"] == "False"
    make_ready(here, fresh[0]["metadata"]["name"], address="127.0.0.1")
    until("the old pool is gone", lambda: here.get("Deployment", "renamed-prefill") is None)
    until("and its budget", lambda: here.get("PodDisruptionBudget", "renamed-prefill") is None)
    assert here.get("Deployment", "renamed-fresh")


def test_a_deployment_that_was_deleted_comes_back_as_large_as_it_was(
    here: Place, running: ManagerProcess, clusters: Any
) -> None:
    cluster = clusters("regrown", {**PREFILL, "replicas": {"min": 1, "max": 4}}, DECODE)
    until("children", lambda: applied(here, cluster))
    here.merge("Deployment", "regrown-prefill", {"spec": {"replicas": 3}}, subresource="/scale")
    until("a plan for it", lambda: [
        one for one in ((here.get("InferenceCluster", "regrown") or {})["status"].get("plan") or {}).get("pools", [])
        if (one["name"], one["replicas"]) == ("prefill", 3)
    ])  # fmt: skip
    until("told", lambda: [
        one for one in here.find("Event")
        if one["reason"] == "ForeignScaler" and one["involvedObject"]["name"] == "regrown"
    ])  # fmt: skip
    until("the number is the scaler's again", lambda: "swingpool-scaler" in scalers(here, "regrown-prefill"))
    before = here.get("Deployment", "regrown-prefill")
    assert before is not None
    here.delete("Deployment", "regrown-prefill")

    def made_anew() -> bool:
        now = here.get("Deployment", "regrown-prefill")
        return now is not None and now["metadata"]["uid"] != before["metadata"]["uid"]

    until("made anew", made_anew)
    assert replicas(here, "regrown-prefill") == 3


def test_a_deleted_cluster_leaves_nothing_and_is_forgotten(here: Place, running: ManagerProcess, clusters: Any) -> None:
    cluster = clusters("deleted", PREFILL, DECODE)
    until("children", lambda: applied(here, cluster))
    found = here.get("InferenceCluster", "deleted")
    assert found is not None
    assert "finalizers" not in found["metadata"]
    assert "annotations" not in found["metadata"]
    here.delete("InferenceCluster", "deleted")
    until("garbage collection", lambda: not exist(here, wanted(cluster)))
    until("its series are gone", lambda: running.metric('swingpool_manager_rounds_total{cluster="deleted"') == 0)


def test_an_object_of_somebody_elses_is_left_alone_and_told(
    here: Place, running: ManagerProcess, clusters: Any
) -> None:
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "taken-workers"},
        "spec": {"ports": [{"port": 1}]},
    }
    here.create("Service", service)
    clusters("taken", PREFILL, DECODE)
    condition = until(
        "degraded", lambda: c if (c := here.condition("taken", "Degraded")).get("status") == "True" else None
    )
    assert "Service taken-workers exists and is not this cluster's" in condition["message"]
    assert here.get("Deployment", "taken-prefill"), "the rest is made"
    found = here.get("Service", "taken-workers")
    assert found is not None
    assert found["spec"]["ports"][0]["port"] == 1
    here.delete("Service", "taken-workers")
    until("healed", lambda: here.condition("taken", "Degraded").get("status") == "False")


def test_a_webhook_that_fails_is_told_and_outlived(here: Place, running: ManagerProcess, clusters: Any) -> None:
    name = f"broken-{here.namespace}"
    hooks = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
    here.plane.api.call("POST", hooks, {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": name},
        "webhooks": [{
            "name": "broken.example.com",
            "clientConfig": {"url": "https://127.0.0.1:1/no"},
            "rules": [{"apiGroups": ["policy"], "apiVersions": ["v1"], "operations": ["*"], "resources": ["*"]}],
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": here.namespace}},
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
        }],
    })  # fmt: skip
    try:
        clusters("hooked", PREFILL, DECODE)
        degraded = until(
            "told", lambda: c if (c := here.condition("hooked", "Degraded")).get("status") == "True" else None
        )
        assert "broken.example.com" in degraded["message"]
        assert here.get("Deployment", "hooked-decode"), "what can be made is made"
    finally:
        here.plane.api.call("DELETE", f"{hooks}/{name}")
    until("healed", lambda: here.condition("hooked", "Degraded").get("status") == "False")


def test_an_override_that_cannot_be_merged_is_told_and_changes_nothing(
    here: Place, running: ManagerProcess, clusters: Any
) -> None:
    cluster = clusters("override", PREFILL, DECODE)
    until("children", lambda: applied(here, cluster))
    before = here.get("Deployment", "override-prefill")
    template: dict[str, Any] = {"spec": {"volumes": [{"emptyDir": {}}]}}
    here.merge("InferenceCluster", "override", {"spec": {"pools": [{**PREFILL, "podTemplate": template}, DECODE]}})
    degraded = until(
        "told", lambda: c if (c := here.condition("override", "Degraded")).get("status") == "True" else None
    )
    assert "spec.pools[prefill].podTemplate.spec.volumes[0]: must be a map with the field 'name'" in degraded["message"]
    after = here.get("Deployment", "override-prefill")
    assert before is not None
    assert after is not None
    assert after["metadata"]["generation"] == before["metadata"]["generation"]


def test_the_manager_is_alive_ready_and_logs_one_json_object_a_line(running: ManagerProcess) -> None:
    assert (running.probe("/healthz"), running.probe("/readyz")) == ((200, "ok\n"), (200, "ok\n"))
    assert running.metric("swingpool_manager_leading") == 1
    lines = [json.loads(line) for line in running.log().splitlines()]
    about = [line for line in lines if line["message"] == "created"]
    assert about
    assert all("/" in line["cluster"] and line["kind"] and line["child"] for line in about)
    assert not [line for line in lines if line["level"] == "ERROR"]


def test_a_manager_of_one_namespace_leaves_others_alone(here: Place, running: ManagerProcess, clusters: Any) -> None:
    resource = clusters("here", PREFILL, DECODE)
    elsewhere = f"/apis/{inference_clusters.API_VERSION}/namespaces/default/inferenceclusters"
    here.plane.api.call("POST", elsewhere, {**inference_clusters.smallest(), "spec": resource["spec"]})
    try:
        until("made here", lambda: applied(here, resource))
        assert here.plane.api.call("GET", "/apis/apps/v1/namespaces/default/deployments")["items"] == []
        assert "default/chat" not in running.log()
    finally:
        here.plane.api.call("DELETE", f"{elsewhere}/chat")
