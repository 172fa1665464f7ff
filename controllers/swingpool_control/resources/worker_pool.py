"""One pool's Deployment and PodDisruptionBudget."""

import math

from swingpool_control import names
from swingpool_control.api.pools import CPU
from swingpool_control.api.quantities import seconds
from swingpool_control.api.v1alpha1 import EngineType, InferenceClusterSpec, Pool, PoolRole, RouterType
from swingpool_control.engine.profile import built_in, built_in_names
from swingpool_control.resources import pod_template
from swingpool_control.resources.metadata import Manifest, Owner, disruption_budget, spread_over_nodes
from swingpool_control.resources.probes import exec_probe, http_probe, sleep_before_stop, tcp_probe
from swingpool_control.resources.security import container_security_context, pod_security_context
from swingpool_control.resources.settings import RenderSettings
from swingpool_control.resources.worker_volumes import (
    ENVIRONMENT_SIDE_CHANNEL_HOST,
    ENVIRONMENT_SIDE_CHANNEL_PORT,
    environment,
    mounts,
    volumes,
)
from swingpool_control.vllm import images, kv_events, probes, tls
from swingpool_control.vllm.arguments import worker_arguments
from swingpool_control.vllm.connector import generation, lease_s

STARTUP_BUDGET_S = {EngineType.VLLM: 3600, EngineType.SIMULATED: 300}
"""How long a worker may take to its first good answer: a large model is downloaded, loaded and compiled in it."""

LEAST_STARTUP_BUDGET_S = 900
STARTUP_FACTOR = 10
"""Times the profile's start-up, which is that of a node that has the weights already."""

_SEEN_BY_LIVENESS = "/tmp/swingpool-alive.json"  # noqa: S108 - a volume of the pod's own

SETTLE_S = {RouterType.BUILT_IN: 5, RouterType.EXTERNAL: 15}
"""Seconds from a pod's deletion to SIGTERM, in which its router must have stopped to send it requests."""

STOP_S = 10
"""Seconds that a worker has to end after it stopped answering."""

SURGE = 1
"""Pods that a rolling update adds."""

VLLM_COMMAND = ("python3", "-m", "vllm.entrypoints.openai.api_server")
"""Unlike `vllm serve` it takes the model as `--model`, and runs in every build of vLLM."""

SIMULATED_COMMAND = ("swingpool", "worker")


def children(owner: Owner, spec: InferenceClusterSpec, pool: Pool, settings: RenderSettings) -> tuple[Manifest, ...]:
    """Return the Deployment of a pool, without `spec.replicas`, and its PodDisruptionBudget.

    Raises:
        PodTemplateError: the pool's overrides cannot be merged.
    """
    name = names.pool_deployment(owner.name, pool.name)
    labels = owner.labels(component=names.COMPONENT_WORKER) | {names.LABEL_POOL: pool.name}
    selector = owner.selector(component=names.COMPONENT_WORKER) | {names.LABEL_POOL: pool.name}
    deployment = owner.child(api_version="apps/v1", kind="Deployment", name=name, labels=labels) | {
        "spec": {
            "selector": {"matchLabels": selector},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": SURGE, "maxUnavailable": 0}},
            # Routers know a new worker before a rollout takes an old one from them.
            "minReadySeconds": SETTLE_S[spec.router.type],
            "progressDeadlineSeconds": startup_budget_s(spec) + 300,
            "revisionHistoryLimit": 3,
            "template": pod_template.merge(
                _template(owner, spec, pool, settings, labels=labels, selector=selector),
                pool.pod_template,
                field=f"spec.pools[{pool.name}].podTemplate",
                container=names.CONTAINER_WORKER,
                owned_environment=(ENVIRONMENT_SIDE_CHANNEL_HOST, ENVIRONMENT_SIDE_CHANNEL_PORT),
            ),
        }
    }
    return deployment, disruption_budget(owner, name=name, labels=labels, selector=selector)


def first_role(pool: Pool) -> str:
    """Return the role in which a pool's workers start; a swing worker is useful before anyone has looked at it."""
    return names.ROLE_PREFILL if pool.role is PoolRole.PREFILL else names.ROLE_DECODE


def asks_for_accelerators(spec: InferenceClusterSpec) -> bool:
    """Tell whether workers are scheduled by accelerator; simulated ones only if the user asks for it."""
    return spec.engine.type is EngineType.VLLM or spec.engine.simulated.request_accelerators


def _template(
    owner: Owner,
    spec: InferenceClusterSpec,
    pool: Pool,
    settings: RenderSettings,
    *,
    labels: dict[str, str],
    selector: dict[str, str],
) -> Manifest:
    pod: Manifest = {
        "serviceAccountName": names.worker_service_account(owner.name),
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": pod_security_context(settings),
        "terminationGracePeriodSeconds": _grace_period_s(spec),
        "topologySpreadConstraints": [spread_over_nodes(selector)],
        "containers": [_container(owner, spec, pool, settings)],
        "volumes": volumes(spec),
    }
    if secrets := [*settings.image_pull_secrets, *spec.engine.image_pull_secrets]:
        pod["imagePullSecrets"] = [{"name": secret} for secret in dict.fromkeys(secrets)]
    if asks_for_accelerators(spec):
        if pool.accelerator.resource != CPU:
            pod["tolerations"] = [{"key": pool.accelerator.resource, "operator": "Exists", "effect": "NoSchedule"}]
        if pool.accelerator.product is not None:
            pod["nodeSelector"] = {pool.accelerator.product_label: pool.accelerator.product}
    return {"metadata": {"labels": labels | _role_labels(spec, pool)}, "spec": pod}


def _role_labels(spec: InferenceClusterSpec, pool: Pool) -> dict[str, str]:
    role = first_role(pool)
    labels = {names.LABEL_ROLE: role, names.LABEL_GENERATION: generation(spec)}
    if tls.wanted(spec):
        labels[names.LABEL_TLS] = "true"
    if kv_events.published(spec, pool):
        labels[names.LABEL_KV_EVENTS] = "true"
    if spec.router.type is RouterType.EXTERNAL:
        wanted = spec.router.external.role_labels
        labels[wanted.key] = wanted.prefill if role == names.ROLE_PREFILL else wanted.decode
    return labels


def _container(owner: Owner, spec: InferenceClusterSpec, pool: Pool, settings: RenderSettings) -> Manifest:
    simulated = spec.engine.type is EngineType.SIMULATED
    service = names.pool_deployment(owner.name, pool.name)
    return {
        "name": names.CONTAINER_WORKER,
        "image": _image(spec, pool, settings),
        "imagePullPolicy": settings.image_pull_policy,
        "command": list(SIMULATED_COMMAND if simulated else VLLM_COMMAND),
        "args": worker_arguments(spec, pool),
        "env": environment(spec, pool, service=service),
        "ports": [
            {"name": "http", "containerPort": names.PORT_WORKER, "protocol": "TCP"},
            {"name": "kv", "containerPort": names.PORT_SIDE_CHANNEL, "protocol": "TCP"},
            *_event_ports(spec, pool),
        ],
        "resources": _resources(spec, pool),
        "securityContext": container_security_context(read_only_root=simulated),
        "startupProbe": _startup(spec),
        # A worker that hangs is NotReady within 3 s, for routers that know no better; ours asks it itself.
        "readinessProbe": _answers(spec, period_s=1, timeout_s=1, failures=2),
        "livenessProbe": _liveness(spec),
        "lifecycle": sleep_before_stop(SETTLE_S[spec.router.type]),
        "volumeMounts": mounts(spec),
    }


def _event_ports(spec: InferenceClusterSpec, pool: Pool) -> list[Manifest]:
    if not kv_events.published(spec, pool):
        return []
    ports = {"kv-events": names.PORT_KV_EVENTS, "kv-replay": names.PORT_KV_REPLAY}
    return [{"name": name, "containerPort": port, "protocol": "TCP"} for name, port in ports.items()]


def _image(spec: InferenceClusterSpec, pool: Pool, settings: RenderSettings) -> str:
    if spec.engine.type is EngineType.SIMULATED:
        return pool.engine.image or spec.engine.image or settings.swingpool_image
    return images.image(spec, pool, installed=settings.vllm_image)


def _itself(spec: InferenceClusterSpec) -> str:
    """Return the URL by which a worker's own probes speak to it."""
    return f"http{'s' if tls.wanted(spec) else ''}://127.0.0.1:{names.PORT_WORKER}"


def _answers(spec: InferenceClusterSpec, *, period_s: int, timeout_s: int, failures: int) -> Manifest:
    """Return a probe of the kubelet's own, which has no certificate to show."""
    if tls.wanted(spec):
        return tcp_probe(port="http", period_s=period_s, timeout_s=timeout_s, failures=failures)
    return http_probe(path="/health", port="http", period_s=period_s, timeout_s=timeout_s, failures=failures)


def _startup(spec: InferenceClusterSpec) -> Manifest:
    """Return the probe that lets a worker in: one of vLLM has generated a token by then."""
    budget_s = startup_budget_s(spec)
    if spec.engine.type is EngineType.SIMULATED:
        return _answers(spec, period_s=1, timeout_s=5, failures=budget_s)
    return exec_probe(probes.started_command(_itself(spec)), period_s=5, timeout_s=40, failures=math.ceil(budget_s / 5))


def _liveness(spec: InferenceClusterSpec) -> Manifest:
    """Return the probe that restarts a worker: that loses every request and the KV cache, so it takes a minute."""
    stop_s = SETTLE_S[spec.router.type] + STOP_S
    if spec.engine.type is EngineType.SIMULATED:
        probe = _answers(spec, period_s=10, timeout_s=5, failures=6)
        return probe | {"terminationGracePeriodSeconds": stop_s}
    command = probes.alive_command(_itself(spec), _SEEN_BY_LIVENESS)
    probe = exec_probe(command, period_s=10, timeout_s=probes.ANSWER_S + 5, failures=6)
    return probe | {"terminationGracePeriodSeconds": stop_s}


def startup_budget_s(spec: InferenceClusterSpec) -> int:
    """Return how long a worker may take to its first token: what its profile says many times over, if that is known."""
    profile = spec.profile
    if spec.engine.type is EngineType.VLLM and profile is not None and profile.built_in in built_in_names():
        return max(LEAST_STARTUP_BUDGET_S, math.ceil(STARTUP_FACTOR * built_in(profile.built_in).startup_s))
    return STARTUP_BUDGET_S[spec.engine.type]


def _resources(spec: InferenceClusterSpec, pool: Pool) -> Manifest:
    resources: Manifest = {}
    if spec.engine.type is EngineType.SIMULATED:
        resources = {"requests": {"cpu": "50m", "memory": "128Mi"}, "limits": {"memory": "512Mi"}}
    if asks_for_accelerators(spec):
        accelerators = {pool.accelerator.resource: str(pool.accelerator.count)}
        resources = {kind: resources.get(kind, {}) | accelerators for kind in ("requests", "limits")}
    return resources


def _grace_period_s(spec: InferenceClusterSpec) -> int:
    return SETTLE_S[spec.router.type] + math.ceil(seconds(spec.engine.max_request_duration)) + lease_s(spec)
