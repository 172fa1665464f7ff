"""What the kind provider tells kind, kubeadm, Docker and kubectl."""

import json
from pathlib import Path

import yaml

from e2e.cluster.kind import config
from e2e.cluster.local.layout import NODES

_KIND = Path("/bin/kind")


def test_workers_carry_the_same_labels_as_local_nodes() -> None:
    read = yaml.safe_load(config.document(audit_policy=Path("/c/policy.yaml")))
    assert [node["role"] for node in read["nodes"]] == ["control-plane", "worker", "worker"]
    assert [node["labels"] for node in read["nodes"][1:]] == [spec.labels for spec in NODES]
    assert list(config.WORKERS) == ["swingpool-worker", "swingpool-worker2"]


def test_the_audit_log_is_asked_for_in_both_versions_of_kubeadms_configuration() -> None:
    head = yaml.safe_load(config.document(audit_policy=Path("/c/policy.yaml")))["nodes"][0]
    third, fourth = map(yaml.safe_load, head["kubeadmConfigPatches"])
    assert third["apiVersion"] == "kubeadm.k8s.io/v1beta3"
    assert fourth["apiVersion"] == "kubeadm.k8s.io/v1beta4"
    assert third["apiServer"]["extraArgs"] == {
        argument["name"]: argument["value"] for argument in fourth["apiServer"]["extraArgs"]
    }
    [mount] = head["extraMounts"]
    assert mount["hostPath"] == "/c/policy.yaml"
    assert third["apiServer"]["extraArgs"]["audit-policy-file"] == mount["containerPath"]
    assert mount["containerPath"] in [volume["mountPath"] for volume in third["apiServer"]["extraVolumes"]]


def test_commands() -> None:
    created = config.create(_KIND, configuration=Path("/c/kind.yaml"), kubeconfig=Path("/c/kubeconfig"))
    assert created[:3] == ["/bin/kind", "create", "cluster"]
    assert {"--name=swingpool", "--config=/c/kind.yaml", "--kubeconfig=/c/kubeconfig"} <= set(created)
    assert "--name=swingpool" in config.delete(_KIND, kubeconfig=Path("/c/kubeconfig"))
    assert config.load(_KIND, "localhost/x:1")[1:4] == ["load", "docker-image", "localhost/x:1"]
    killed = config.signal_container("swingpool-worker2", "containerd://abc", 9)
    assert killed == [
        "docker",
        "exec",
        "swingpool-worker2",
        "ctr",
        "-n",
        "k8s.io",
        "tasks",
        "kill",
        "--signal",
        "9",
        "abc",
    ]
    away, back = config.stop_api_server(), config.start_api_server()
    assert away[-2:] == back[:-3:-1]


def test_gpus_are_added_to_a_nodes_status() -> None:
    arguments = config.gpu_patch("swingpool-worker", NODES[0])
    assert "--subresource=status" in arguments
    [patch] = [json.loads(each.removeprefix("--patch=")) for each in arguments if each.startswith("--patch=")]
    assert patch == [{"op": "add", "path": "/status/capacity/nvidia.com~1gpu", "value": "8"}]


def test_a_service_is_reached_through_one_beside_it() -> None:
    given = {
        "metadata": {"name": "chat-router", "uid": "1"},
        "spec": {
            "clusterIP": "10.96.1.1",
            "selector": {"a": "b"},
            "ports": [{"name": "http", "port": 80, "targetPort": "http", "protocol": "TCP", "nodePort": 1}],
        },
    }
    beside = config.outside_service(given, name="chat-router-outside", namespace="chat")
    assert beside["metadata"] == {"name": "chat-router-outside", "namespace": "chat"}
    assert beside["spec"] == {
        "type": "NodePort",
        "selector": {"a": "b"},
        "ports": [{"name": "http", "port": 80, "targetPort": "http", "protocol": "TCP"}],
    }
