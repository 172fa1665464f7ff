"""The children of a cluster: what is there, what holds for all of them, and what each is for."""

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swingpool.cli import picker
from swingpool_control import names
from swingpool_control.resources.pod_template import PodTemplateError
from swingpool_control.resources.settings import RenderSettings
from tests.support.resource_specs import SETTINGS, SPECS, child, container_of, pod_of, render, spec_of

LABEL_VALUE = re.compile(r"^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$")
DNS_LABEL = re.compile(r"^[a-z]([-a-z0-9]{0,61}[a-z0-9])?$")
POOL_NAME = st.from_regex(r"\A[a-z]([-a-z0-9]{0,18}[a-z0-9])?\Z").filter(lambda n: n not in names.RESERVED_POOL_NAMES)
CLUSTER_NAME = st.from_regex(r"\A[a-z]([-a-z0-9]{0,38}[a-z0-9])?\Z")


def _kinds(found: tuple[dict[str, Any], ...]) -> list[tuple[str, str]]:
    return [(item["kind"], item["metadata"]["name"]) for item in found]


def _labels_of(found: dict[str, Any]) -> list[dict[str, str]]:
    labels = [found["metadata"]["labels"]]
    if found["kind"] == "Deployment":
        labels.append(found["spec"]["template"]["metadata"]["labels"])
    return labels


def test_children_of_a_small_cluster_in_the_order_to_apply_them() -> None:
    assert _kinds(render(spec_of("minimal"))) == [
        ("ServiceAccount", "chat-router"),
        ("ServiceAccount", "chat-worker"),
        ("Role", "chat-router"),
        ("RoleBinding", "chat-router"),
        ("ConfigMap", "chat-router"),
        ("Service", "chat-router"),
        ("Service", "chat-workers"),
        ("PodDisruptionBudget", "chat-decode"),
        ("PodDisruptionBudget", "chat-prefill"),
        ("PodDisruptionBudget", "chat-router"),
        ("Deployment", "chat-decode"),
        ("Deployment", "chat-prefill"),
        ("Deployment", "chat-router"),
    ]


def test_an_external_router_gets_no_router_of_ours() -> None:
    found = render(spec_of("external"))
    assert not [item for item in found if item["metadata"]["labels"][names.LABEL_COMPONENT] == names.COMPONENT_ROUTER]
    template = child(found, "Deployment", "chat-prefill")["spec"]["template"]
    assert template["metadata"]["labels"].items() >= {names.LABEL_ROLE: "prefill", "llm-d.ai/role": "p"}.items()
    template = child(found, "Deployment", "chat-decode")["spec"]["template"]
    assert template["metadata"]["labels"].items() >= {names.LABEL_ROLE: "decode", "llm-d.ai/role": "d"}.items()


@pytest.mark.parametrize("name", SPECS)
def test_every_child_belongs_to_its_cluster_and_goes_with_it(name: str) -> None:
    for item in render(spec_of(name), uid="some-uid"):
        assert item["metadata"]["namespace"] == "models"
        assert item["metadata"]["labels"][names.LABEL_CLUSTER] == "chat"
        assert item["metadata"]["labels"][names.LABEL_MANAGED_BY] == names.MANAGED_BY
        assert item["metadata"]["ownerReferences"] == [
            {
                "apiVersion": "swingpool.dev/v1alpha1",
                "kind": "InferenceCluster",
                "name": "chat",
                "uid": "some-uid",
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ]


@pytest.mark.parametrize("name", SPECS)
def test_children_are_plain_data_and_always_the_same(name: str) -> None:
    found = render(spec_of(name))
    assert json.loads(json.dumps(found)) == list(found)
    assert render(spec_of(name)) == found
    found[0]["metadata"]["labels"]["changed"] = "here"
    assert all("changed" not in item["metadata"]["labels"] for item in found[1:])


@given(cluster=CLUSTER_NAME, pools=st.lists(POOL_NAME, min_size=2, max_size=16, unique=True))
def test_names_and_labels_are_valid_and_names_are_unique(cluster: str, pools: list[str]) -> None:
    roles = ["Prefill", "Decode", "Swing"]
    spec = spec_of("minimal", pools=[{"name": pool, "role": roles[i % 3]} for i, pool in enumerate(pools)])
    found = render(spec, name=cluster)
    assert len(set(_kinds(found))) == len(found)
    for item in found:
        assert DNS_LABEL.match(item["metadata"]["name"])
        for labels in _labels_of(item):
            assert all(LABEL_VALUE.match(value) for value in labels.values())


def test_a_models_name_stands_in_no_label() -> None:
    for item in render(spec_of("minimal")):
        assert not any("lama" in value for labels in _labels_of(item) for value in labels.values())


@pytest.mark.parametrize("name", SPECS)
def test_pools_have_no_replicas_and_select_their_pods_whatever_their_role(name: str) -> None:
    spec = spec_of(name)
    found = render(spec)
    for pool in spec.pools:
        deployment = child(found, "Deployment", f"chat-{pool.name}")["spec"]
        assert "replicas" not in deployment
        selector = deployment["selector"]["matchLabels"]
        assert names.LABEL_ROLE not in selector
        assert selector.items() <= deployment["template"]["metadata"]["labels"].items()
        budget = child(found, "PodDisruptionBudget", f"chat-{pool.name}")["spec"]
        assert (budget["selector"]["matchLabels"], budget["maxUnavailable"]) == (selector, 1)


def test_no_selector_matches_another_components_or_pools_pods() -> None:
    deployments = [item for item in render(spec_of("full")) if item["kind"] == "Deployment"]
    for one in deployments:
        selector = one["spec"]["selector"]["matchLabels"].items()
        matched = [d for d in deployments if selector <= d["spec"]["template"]["metadata"]["labels"].items()]
        assert matched == [one]


def test_workers_start_in_a_role_in_which_they_are_useful() -> None:
    found = render(spec_of("simulated"))
    roles = {
        pool: child(found, "Deployment", f"chat-{pool}")["spec"]["template"]["metadata"]["labels"][names.LABEL_ROLE]
        for pool in ("prefill", "decode", "swing")
    }
    assert roles == {"prefill": "prefill", "decode": "decode", "swing": "decode"}


def test_accelerators_decide_where_workers_run() -> None:
    found = render(spec_of("full"))
    pod = pod_of(found, "chat-decode")
    assert pod["nodeSelector"] == {"amd.com/gpu.product-name": "MI300X"}
    assert pod["tolerations"] == [{"key": "amd.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]
    resources = container_of(pod, "worker")["resources"]
    assert resources["requests"]["amd.com/gpu"] == resources["limits"]["amd.com/gpu"] == "1"
    assert "nodeSelector" not in pod_of(found, "chat-swing")


def test_a_dry_run_needs_no_accelerator() -> None:
    pod = pod_of(render(spec_of("dry-run")), "chat-prefill")
    assert "nodeSelector" not in pod
    assert "tolerations" not in pod
    resources = container_of(pod, "worker")["resources"]
    assert set(resources["requests"]) == {"cpu", "memory"}
    assert set(resources["limits"]) == {"memory"}


def test_simulated_workers_can_ask_for_accelerators() -> None:
    pod = pod_of(render(spec_of("simulated")), "chat-prefill")
    assert pod["nodeSelector"] == {"nvidia.com/gpu.product": "NVIDIA-H200"}
    resources = container_of(pod, "worker")["resources"]
    assert resources["limits"] == {"memory": "512Mi", "nvidia.com/gpu": "2"}
    assert resources["requests"]["nvidia.com/gpu"] == "2"


@pytest.mark.parametrize("name", SPECS)
def test_a_worker_outlives_its_longest_request(name: str) -> None:
    spec = spec_of(name)
    found = render(spec)
    for pool in spec.pools:
        pod = pod_of(found, f"chat-{pool.name}")
        worker = container_of(pod, "worker")
        settle_s = worker["lifecycle"]["preStop"]["sleep"]["seconds"]
        engine_s = int(worker["args"][worker["args"].index("--shutdown-timeout") + 1])
        assert pod["terminationGracePeriodSeconds"] == settle_s + engine_s + 30


def test_a_worker_that_hangs_is_not_ready_within_three_seconds_and_not_restarted_within_half_a_minute() -> None:
    worker = container_of(pod_of(render(spec_of("minimal")), "chat-decode"), "worker")
    ready, live, start = (worker[f"{kind}Probe"] for kind in ("readiness", "liveness", "startup"))
    assert ready["periodSeconds"] * ready["failureThreshold"] + ready["timeoutSeconds"] <= 3
    assert live["periodSeconds"] * live["failureThreshold"] >= 30
    assert start["periodSeconds"] * start["failureThreshold"] >= 1800


@pytest.mark.parametrize("name", SPECS)
def test_what_does_not_answer_is_not_given_the_time_of_a_long_request_to_end(name: str) -> None:
    for item in render(spec_of(name)):
        if item["kind"] != "Deployment":
            continue
        pod = item["spec"]["template"]["spec"]
        for container in [*pod["containers"], *pod.get("initContainers", [])]:
            if "livenessProbe" in container:
                settle_s = container.get("lifecycle", {}).get("preStop", {}).get("sleep", {}).get("seconds", 0)
                assert settle_s < container["livenessProbe"]["terminationGracePeriodSeconds"] <= 30


def test_vllm_writes_only_where_it_may() -> None:
    pod = pod_of(render(spec_of("minimal")), "chat-decode")
    worker = container_of(pod, "worker")
    mounts = {mount["mountPath"]: mount["name"] for mount in worker["volumeMounts"]}
    variables = {variable["name"]: variable.get("value") for variable in worker["env"]}
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    assert mounts[variables["HOME"] or ""] == "home"
    assert mounts[variables["HF_HOME"] or ""] == "model-cache"
    assert volumes[mounts["/dev/shm"]]["emptyDir"] == {"medium": "Memory"}


@pytest.mark.parametrize(
    ("cache", "source"),
    [
        (None, {"emptyDir": {}}),
        ({"sizeLimit": "200Gi"}, {"emptyDir": {"sizeLimit": "200Gi"}}),
        ({"persistentVolumeClaim": "w"}, {"persistentVolumeClaim": {"claimName": "w"}}),
        ({"hostPath": "/mnt/w"}, {"hostPath": {"path": "/mnt/w", "type": "DirectoryOrCreate"}}),
    ],
)
def test_the_model_cache_lies_where_the_user_wants_it(cache: dict[str, str] | None, source: dict[str, Any]) -> None:
    spec = spec_of("minimal", engine={} if cache is None else {"modelCache": cache})
    (volume,) = [v for v in pod_of(render(spec), "chat-decode")["volumes"] if v["name"] == "model-cache"]
    assert volume == {"name": "model-cache"} | source


def test_overrides_reach_the_pods_of_their_pool_alone() -> None:
    found = render(spec_of("full"))
    pod = pod_of(found, "chat-swing")
    assert pod["priorityClassName"] == "system-cluster-critical"
    assert [toleration["key"] for toleration in pod["tolerations"]] == ["nvidia.com/gpu", "spot"]
    assert "priorityClassName" not in pod_of(found, "chat-decode")


def test_an_override_that_cannot_be_merged_names_pool_and_field() -> None:
    pools = [{"name": "p", "role": "Prefill"}, {"name": "d", "role": "Decode", "podTemplate": {"spec": []}}]
    with pytest.raises(PodTemplateError, match=r"^spec\.pools\[d\]\.podTemplate\.spec: must be a map"):
        render(spec_of("minimal", pools=pools))


def test_images_and_pull_secrets_come_from_the_spec_and_else_from_the_settings() -> None:
    settings = RenderSettings(
        swingpool_image="s:1",
        envoy_image="e:1",
        envoy_command=("/usr/local/bin/envoy",),
        vllm_image="v:1",
        image_pull_policy="Always",
        image_pull_secrets=("all",),
        run_as_user=None,
    )
    found = render(spec_of("full"), settings=settings)
    router, worker = pod_of(found, "chat-router"), pod_of(found, "chat-decode")
    assert container_of(router, "picker")["image"] == "s:1"
    assert container_of(router, "envoy")["image"] == "e:1"
    assert container_of(router, "envoy")["command"] == ["/usr/local/bin/envoy"]
    assert router["imagePullSecrets"] == [{"name": "all"}]
    assert container_of(worker, "worker")["image"] == "registry.example/vllm:nightly"
    assert container_of(worker, "worker")["imagePullPolicy"] == "Always"
    assert worker["imagePullSecrets"] == [{"name": "all"}, {"name": "pull-engine"}]
    assert "runAsUser" not in worker["securityContext"]
    assert (
        container_of(pod_of(render(spec_of("minimal"), settings=settings), "chat-decode"), "worker")["image"] == "v:1"
    )
    assert (
        container_of(pod_of(render(spec_of("dry-run"), settings=settings), "chat-decode"), "worker")["image"] == "s:1"
    )


def test_the_router_reads_pods_and_nothing_else() -> None:
    rules = child(render(spec_of("minimal")), "Role", "chat-router")["rules"]
    assert rules == [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]}]


def test_workers_have_no_rights() -> None:
    found = render(spec_of("minimal"))
    assert child(found, "ServiceAccount", "chat-worker")["automountServiceAccountToken"] is False
    assert pod_of(found, "chat-decode")["automountServiceAccountToken"] is False
    bound = child(found, "RoleBinding", "chat-router")["subjects"]
    assert [subject["name"] for subject in bound] == ["chat-router"]


def test_envoy_finds_its_configuration_and_its_first_endpoints() -> None:
    found = render(spec_of("minimal"))
    pod, data = pod_of(found, "chat-router"), child(found, "ConfigMap", "chat-router")["data"]
    envoy, first, beside = (container_of(pod, name) for name in ("envoy", "first-endpoints", "picker"))
    path = envoy["args"][envoy["args"].index("--config-path") + 1]
    eds_file = beside["args"][beside["args"].index("--eds-file") + 1]
    assert f'"path": "{eds_file}"' in data[path.rpartition("/")[2]]
    assert first["args"] == ["--init", "--eds-file", eds_file]
    for container in (envoy, first, beside):
        assert eds_file.rpartition("/")[0] in [mount["mountPath"] for mount in container["volumeMounts"]]


def test_the_router_outlives_its_longest_request() -> None:
    pod = pod_of(render(spec_of("full")), "chat-router")
    beside = container_of(pod, "picker")
    drain_s = int(beside["args"][beside["args"].index("--drain-timeout") + 1])
    assert drain_s == 91
    assert pod["terminationGracePeriodSeconds"] > beside["lifecycle"]["preStop"]["sleep"]["seconds"] + drain_s


@pytest.mark.parametrize("container", ["picker", "first-endpoints"])
def test_the_picker_understands_its_arguments(container: str) -> None:
    found = container_of(pod_of(render(spec_of("minimal")), "chat-router"), container)
    assert found["command"] == ["swingpool", "picker"]
    context = picker.command.make_context("picker", list(found["args"]))
    assert context.params["init"] is (container == "first-endpoints")


def test_envoy_starts_before_the_picker_and_ends_after_it() -> None:
    pod = pod_of(render(spec_of("minimal")), "chat-router")
    assert [container["name"] for container in pod["initContainers"]] == ["first-endpoints", "envoy"]
    assert container_of(pod, "envoy")["restartPolicy"] == "Always"
    assert [container["name"] for container in pod["containers"]] == ["picker"]


def test_a_change_of_envoys_configuration_rolls_the_router(monkeypatch: pytest.MonkeyPatch) -> None:
    def annotations() -> dict[str, str]:
        template = child(render(spec_of("minimal")), "Deployment", "chat-router")["spec"]["template"]
        found: dict[str, str] = template["metadata"]["annotations"]
        return found

    before = annotations()
    assert before == annotations()
    monkeypatch.setattr("swingpool_control.resources.router.bootstrap", lambda settings: {"node": settings.node_id})
    assert before != annotations()


def test_the_routers_service_is_of_the_type_the_user_wants() -> None:
    service = child(render(spec_of("full")), "Service", "chat-router")["spec"]
    assert service["type"] == "LoadBalancer"
    assert service["ports"] == [{"name": "https", "port": 443, "targetPort": "http", "protocol": "TCP"}]
    assert child(render(spec_of("full")), "Deployment", "chat-router")["spec"]["replicas"] == 3


@pytest.mark.parametrize("name", SPECS)
def test_every_container_is_restricted(name: str) -> None:
    for item in render(spec_of(name)):
        if item["kind"] != "Deployment":
            continue
        pod = item["spec"]["template"]["spec"]
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["runAsUser"] == SETTINGS.run_as_user
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in [*pod["containers"], *pod.get("initContainers", [])]:
            assert container["securityContext"]["allowPrivilegeEscalation"] is False
            assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}


def test_a_picker_knows_its_pods_whole_name() -> None:
    [env] = container_of(pod_of(render(spec_of("minimal")), "chat-router"), "picker")["env"]
    assert (env["name"], env["valueFrom"]["fieldRef"]["fieldPath"]) == ("POD_NAME", "metadata.name")


@pytest.mark.parametrize("affinity", ["None", "ClientIP"])
def test_a_clients_connections_go_to_one_router_pod_if_that_is_asked_for(affinity: str) -> None:
    found = render(spec_of("minimal", router={"builtIn": {"sessionAffinity": affinity}}))
    assert child(found, "Service", "chat-router")["spec"]["sessionAffinity"] == affinity
