"""The built-in router: Envoy with the endpoint picker beside it, and what they need.

Envoy is a sidecar container in Kubernetes' sense, so that a pod that ends stops it last: the picker gets SIGTERM first
and has Envoy drain while requests still run.
"""

import hashlib
import json
import math
from typing import Any

from swingpool_control import names
from swingpool_control.api.access import ApiKeys, Tls
from swingpool_control.api.quantities import seconds
from swingpool_control.api.router import RequestLog
from swingpool_control.api.v1alpha1 import InferenceClusterSpec
from swingpool_control.resources import authorizer_tls, envoy_worker_tls, inference_objective, worker_tls
from swingpool_control.resources.envoy import (
    EDS_DIRECTORY,
    EDS_FILE,
    HEALTH_PATH,
    PICKER_SOCKET,
    bootstrap,
)
from swingpool_control.resources.envoy_access import certificate
from swingpool_control.resources.envoy_of_spec import envoy_settings
from swingpool_control.resources.envoy_settings import WorkerTlsFiles
from swingpool_control.resources.inference_pool import CERTIFICATE_DIRECTORY, VOLUME
from swingpool_control.resources.metadata import Manifest, Owner, disruption_budget, spread_over_nodes
from swingpool_control.resources.probes import http_probe, liveness, sleep_before_stop
from swingpool_control.resources.security import container_security_context, pod_security_context
from swingpool_control.resources.settings import RenderSettings
from swingpool_control.vllm import tls

ANNOTATION_CONFIG_HASH = f"{names.GROUP}/config-hash"
"""On the router's pods: hash of what Envoy and the picker are told, so that a change of it rolls them."""

CONFIG_DIRECTORY = "/etc/swingpool/envoy"
BOOTSTRAP_KEY = "envoy.json"
SPEC_KEY = "spec.json"
"""What of the cluster's spec the picker places requests by."""
CERTIFICATE_KEY = "certificate.json"
WORKER_CLIENT_KEY, WORKER_TRUST_KEY = "worker-client.json", "worker-ca.json"
PROFILE_DIRECTORY = "/etc/swingpool/profile"
TLS_DIRECTORY = "/etc/swingpool/tls"
API_KEYS_DIRECTORY = "/etc/swingpool/api-keys"
API_KEYS_FILE = f"{EDS_DIRECTORY}/api-keys.json"
_OF_THE_SPEC: dict[str, Any] = {
    "model": True,
    "objectives": True,
    "profile": True,
    "engine": {"type", "simulated", "scheduling"},
    "router": True,
    "pools": {"__all__": {"name", "role", "accelerator", "engine"}},
}

SETTLE_S = 5
"""Seconds from a router pod's deletion to SIGTERM, in which clients' connections must have learnt of it."""

STOP_S = 10
"""Seconds that picker and Envoy have to end once the last request has."""

RBAC_GROUP = "rbac.authorization.k8s.io"


def children(owner: Owner, spec: InferenceClusterSpec, settings: RenderSettings) -> tuple[Manifest, ...]:
    """Return everything that the built-in router consists of.

    It may read the namespace's pods and, for gateways of others, InferenceObjectives; nothing else.
    """
    name = names.router(owner.name)
    labels = owner.labels(component=names.COMPONENT_ROUTER)
    selector = owner.selector(component=names.COMPONENT_ROUTER)
    config = _config(owner, spec, name=name, labels=labels)
    return (
        owner.child(api_version="v1", kind="ServiceAccount", name=name, labels=labels),
        *_permissions(owner, spec, name=name, labels=labels),
        config,
        _service(owner, spec, name=name, labels=labels, selector=selector),
        disruption_budget(owner, name=name, labels=labels, selector=selector),
        _deployment(owner, spec, settings, name=name, labels=labels, selector=selector, config=config),
    )


def _permissions(
    owner: Owner, spec: InferenceClusterSpec, *, name: str, labels: dict[str, str]
) -> tuple[Manifest, Manifest]:
    version = f"{RBAC_GROUP}/v1"
    role = owner.child(api_version=version, kind="Role", name=name, labels=labels)
    binding = owner.child(api_version=version, kind="RoleBinding", name=name, labels=labels)
    read = [("", "pods")]
    if spec.router.built_in.inference_pool:
        read.append((inference_objective.GROUP, inference_objective.PLURAL))
    rules = [{"apiGroups": [group], "resources": [kind], "verbs": ["get", "list", "watch"]} for group, kind in read]
    return (
        role | {"rules": rules},
        binding
        | {
            "roleRef": {"apiGroup": RBAC_GROUP, "kind": "Role", "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": owner.namespace}],
        },
    )


def _config(owner: Owner, spec: InferenceClusterSpec, *, name: str, labels: dict[str, str]) -> Manifest:
    needed = spec.model_dump(mode="json", by_alias=True, exclude_none=True, include=_OF_THE_SPEC)
    certificate_file = f"{CONFIG_DIRECTORY}/{CERTIFICATE_KEY}"
    chosen = envoy_settings(
        spec,
        node_id=name,
        certificate_file=certificate_file,
        api_keys_file=API_KEYS_FILE,
        worker_tls=_worker_tls(spec),
        authorizer_files=authorizer_tls.files(spec, CONFIG_DIRECTORY),
    )
    texts = {BOOTSTRAP_KEY: bootstrap(chosen), SPEC_KEY: needed, **authorizer_tls.texts(spec)}
    if spec.router.built_in.tls:
        texts[CERTIFICATE_KEY] = certificate(TLS_DIRECTORY)
    if tls.wanted(spec):
        texts[WORKER_CLIENT_KEY] = envoy_worker_tls.certificate(worker_tls.ROUTER_DIRECTORY)
        texts[WORKER_TRUST_KEY] = envoy_worker_tls.trust(worker_tls.ROUTER_DIRECTORY)
    return owner.child(api_version="v1", kind="ConfigMap", name=name, labels=labels) | {
        "data": {key: json.dumps(value, indent=2, sort_keys=True) + "\n" for key, value in texts.items()}
    }


def _worker_tls(spec: InferenceClusterSpec) -> WorkerTlsFiles | None:
    wanted = tls.wanted(spec)
    if wanted is None:
        return None
    return WorkerTlsFiles(
        certificate_file=f"{CONFIG_DIRECTORY}/{WORKER_CLIENT_KEY}",
        trust_file=f"{CONFIG_DIRECTORY}/{WORKER_TRUST_KEY}",
        server_name=wanted.server_name,
    )


def _secrets(spec: InferenceClusterSpec) -> dict[str, str]:
    """Return the mounted Secrets by the volume's name."""
    router = spec.router.built_in
    found: dict[str, Tls | ApiKeys | None] = {"tls": router.tls, "api-keys": router.api_keys}
    if router.inference_pool:
        found[VOLUME] = router.inference_pool.certificate
    secrets = {volume: one.secret_name for volume, one in found.items() if one}
    if wanted := tls.wanted(spec):
        secrets[worker_tls.ROUTER_VOLUME] = wanted.client_secret_name
    return secrets


def _service(
    owner: Owner, spec: InferenceClusterSpec, *, name: str, labels: dict[str, str], selector: dict[str, str]
) -> Manifest:
    return owner.child(api_version="v1", kind="Service", name=name, labels=labels) | {
        "spec": {
            "type": spec.router.built_in.service_type.value,
            "sessionAffinity": spec.router.built_in.session_affinity.value,
            "selector": selector,
            "ports": [
                {"name": "https", "port": 443, "targetPort": "http", "protocol": "TCP"}
                if spec.router.built_in.tls
                else {"name": "http", "port": 80, "targetPort": "http", "protocol": "TCP"}
            ],
        }
    }


def _deployment(
    owner: Owner,
    spec: InferenceClusterSpec,
    settings: RenderSettings,
    *,
    name: str,
    labels: dict[str, str],
    selector: dict[str, str],
    config: Manifest,
) -> Manifest:
    pod: Manifest = {
        "serviceAccountName": name,
        "automountServiceAccountToken": True,
        "enableServiceLinks": False,
        "securityContext": pod_security_context(settings),
        "terminationGracePeriodSeconds": SETTLE_S + _longest_request_s(spec) + STOP_S,
        "topologySpreadConstraints": [spread_over_nodes(selector)],
        "initContainers": [_first_files(spec, settings), _envoy(spec, settings)],
        "containers": [_picker(owner, spec, settings)],
        "volumes": [
            {"name": "config", "configMap": {"name": name, "defaultMode": 0o644}},
            {"name": "run", "emptyDir": {"medium": "Memory", "sizeLimit": "16Mi"}},
            {"name": "tmp", "emptyDir": {}},
            *(worker_tls.secret_volume(volume, secret) for volume, secret in _secrets(spec).items()),
            *authorizer_tls.volumes(spec),
        ],
    }
    if spec.profile and spec.profile.config_map:
        # Optional: the picker serves without it, by what it learns, and an admin may make the ConfigMap later.
        source = {"name": spec.profile.config_map.name, "optional": True}
        pod["volumes"].append({"name": "profile", "configMap": source})
    if settings.image_pull_secrets:
        pod["imagePullSecrets"] = [{"name": secret} for secret in settings.image_pull_secrets]
    digest = hashlib.sha256(json.dumps(config["data"], sort_keys=True).encode()).hexdigest()[:16]
    return owner.child(api_version="apps/v1", kind="Deployment", name=name, labels=labels) | {
        "spec": {
            "replicas": spec.router.built_in.replicas,
            "selector": {"matchLabels": selector},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
            "revisionHistoryLimit": 3,
            "template": {"metadata": {"labels": labels, "annotations": {ANNOTATION_CONFIG_HASH: digest}}, "spec": pod},
        }
    }


def _api_keys(spec: InferenceClusterSpec) -> tuple[tuple[str, ...], tuple[Manifest, ...]]:
    """Return the picker's arguments and mounts for API keys."""
    if not spec.router.built_in.api_keys:
        return (), ()
    return (
        ("--api-keys-directory", API_KEYS_DIRECTORY, "--api-keys-file", API_KEYS_FILE),
        ({"name": "api-keys", "mountPath": API_KEYS_DIRECTORY, "readOnly": True},),
    )


def _first_files(spec: InferenceClusterSpec, settings: RenderSettings) -> Manifest:
    """Return the container that writes an endpoint file without workers, and the API keys: Envoy waits for both."""
    arguments, mounts = _api_keys(spec)
    return {
        "name": "first-endpoints",
        "image": settings.swingpool_image,
        "imagePullPolicy": settings.image_pull_policy,
        "command": ["swingpool", "picker"],
        "args": ["--init", "--eds-file", EDS_FILE, *arguments],
        "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "256Mi"}},
        "securityContext": container_security_context(read_only_root=True),
        "volumeMounts": [
            {"name": "run", "mountPath": EDS_DIRECTORY},
            {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108 - a volume of the pod's own
            *mounts,
        ],
    }


def _envoy(spec: InferenceClusterSpec, settings: RenderSettings) -> Manifest:
    certificate_shown = spec.router.built_in.tls is not None
    scheme = "HTTPS" if certificate_shown else "HTTP"
    return {
        "name": "envoy",
        "restartPolicy": "Always",
        "image": settings.envoy_image,
        "imagePullPolicy": settings.image_pull_policy,
        "command": list(settings.envoy_command),
        "args": [
            *("--config-path", f"{CONFIG_DIRECTORY}/{BOOTSTRAP_KEY}"),
            *("--log-level", "warning", "--disable-hot-restart"),
        ],
        "ports": [{"name": "http", "containerPort": names.PORT_ROUTER, "protocol": "TCP"}],
        "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "2Gi"}},
        "securityContext": container_security_context(read_only_root=True),
        "readinessProbe": http_probe(path=HEALTH_PATH, port="http", period_s=1, timeout_s=1, failures=2, scheme=scheme),
        "livenessProbe": liveness(path=HEALTH_PATH, port="http", failures=3, stop_s=STOP_S, scheme=scheme),
        "volumeMounts": [
            {"name": "config", "mountPath": CONFIG_DIRECTORY, "readOnly": True},
            {"name": "run", "mountPath": EDS_DIRECTORY},
            {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108 - a volume of the pod's own
            *([{"name": "tls", "mountPath": TLS_DIRECTORY, "readOnly": True}] if certificate_shown else []),
            *worker_tls.router_mounts(spec),
            *authorizer_tls.mounts(spec),
        ],
    }


def _picker(owner: Owner, spec: InferenceClusterSpec, settings: RenderSettings) -> Manifest:
    reference = spec.profile.config_map if spec.profile else None
    key_arguments, key_mounts = _api_keys(spec)
    mounts = [
        *key_mounts,
        *worker_tls.router_mounts(spec),
        {"name": "config", "mountPath": CONFIG_DIRECTORY, "readOnly": True},
        {"name": "run", "mountPath": EDS_DIRECTORY},
        {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108 - a volume of the pod's own
    ]
    if spec.router.built_in.inference_pool:
        mounts.append({"name": VOLUME, "mountPath": CERTIFICATE_DIRECTORY, "readOnly": True})
    if reference:
        mounts.append({"name": "profile", "mountPath": PROFILE_DIRECTORY, "readOnly": True})
    return {
        "name": "picker",
        "image": settings.swingpool_image,
        "imagePullPolicy": settings.image_pull_policy,
        "command": ["swingpool", "picker"],
        "args": [
            *("--cluster", owner.name, "--namespace", owner.namespace),
            *("--eds-file", EDS_FILE),
            *("--grpc-socket", PICKER_SOCKET, "--http-port", str(names.PORT_PICKER_HTTP)),
            *("--drain-timeout", str(_longest_request_s(spec))),
            *("--spec-file", f"{CONFIG_DIRECTORY}/{SPEC_KEY}"),
            *key_arguments,
            *(("--request-log", "-") if spec.router.built_in.request_log is RequestLog.STDOUT else ()),
            *(("--profile-file", f"{PROFILE_DIRECTORY}/{reference.key}") if reference else ()),
            *_gateway_arguments(owner, spec),
            *_worker_tls_arguments(spec),
            *_event_arguments(spec),
            *(("--authorizer",) if spec.router.built_in.authorizer else ()),
            *(("--otlp-traces-endpoint", spec.tracing.endpoint) if spec.tracing else ()),
        ],
        # A pod's name may be longer than its host's.
        "env": [{"name": "POD_NAME", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}}}],
        "ports": [
            {"name": "state", "containerPort": names.PORT_PICKER_HTTP, "protocol": "TCP"},
            *_gateway_ports(spec),
        ],
        "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": _most_memory(spec)}},
        "securityContext": container_security_context(read_only_root=True),
        "readinessProbe": http_probe(path="/readyz", port="state", period_s=1, timeout_s=1, failures=2),
        "livenessProbe": liveness(path="/healthz", port="state", failures=3, stop_s=SETTLE_S + STOP_S),
        "lifecycle": sleep_before_stop(SETTLE_S),
        "volumeMounts": mounts,
    }


def _gateway_arguments(owner: Owner, spec: InferenceClusterSpec) -> tuple[str, ...]:
    if spec.router.built_in.inference_pool is None:
        return ()
    return (
        *("--gateway-port", str(names.PORT_PICKER_GATEWAY), "--gateway-certificate", CERTIFICATE_DIRECTORY),
        *("--inference-pool", owner.name),
    )


def _worker_tls_arguments(spec: InferenceClusterSpec) -> tuple[str, ...]:
    wanted = tls.wanted(spec)
    if wanted is None:
        return ()
    return ("--worker-tls", worker_tls.ROUTER_DIRECTORY, "--worker-tls-name", wanted.server_name)


def _event_arguments(spec: InferenceClusterSpec) -> tuple[str, ...]:
    wanted = spec.router.built_in.kv_events
    return () if wanted is None else ("--kv-events", "--tokenize-timeout", f"{seconds(wanted.tokenize_timeout):g}")


def _gateway_ports(spec: InferenceClusterSpec) -> list[Manifest]:
    if spec.router.built_in.inference_pool is None:
        return []
    return [{"name": "gateway", "containerPort": names.PORT_PICKER_GATEWAY, "protocol": "TCP"}]


def _most_memory(spec: InferenceClusterSpec) -> str:
    """Return the picker's limit: what it knows of caches takes room, a workers' worth of blocks each."""
    return "1Gi" if spec.router.built_in.kv_events is None else "4Gi"


def _longest_request_s(spec: InferenceClusterSpec) -> int:
    return math.ceil(seconds(spec.engine.max_request_duration))
