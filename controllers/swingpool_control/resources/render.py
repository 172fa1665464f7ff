"""Every Kubernetes object that an InferenceCluster asks for: a function of its spec, and of nothing else."""

import json

from swingpool_control.api.v1alpha1 import InferenceClusterSpec, RouterType
from swingpool_control.resources import inference_pool, router, worker_pool, workers
from swingpool_control.resources.metadata import Manifest, Owner
from swingpool_control.resources.settings import RenderSettings

APPLY_ORDER = (
    "ServiceAccount",
    "Role",
    "RoleBinding",
    "ConfigMap",
    "Service",
    "PodDisruptionBudget",
    "Deployment",
    inference_pool.KIND,
)
"""Kinds of children, each after those that it needs."""


def children(
    *, namespace: str, name: str, uid: str, spec: InferenceClusterSpec, settings: RenderSettings
) -> tuple[Manifest, ...]:
    """Return every child as a plain manifest, in the order in which to apply them.

    Pools' Deployments have no `spec.replicas`: whoever scales them owns it. Values are written as the API server stores
    them, so that a live object that is as it should be contains its manifest.

    Args:
        namespace: the InferenceCluster's namespace, and its children's.
        name: the InferenceCluster's name.
        uid: its uid, for the children's owner references.
        spec: what the user wrote, defaults filled in.
        settings: what the installer decided.

    Raises:
        PodTemplateError: a pool's pod template override cannot be merged; the message names pool, field and remedy.
    """
    owner = Owner(namespace=namespace, name=name, uid=uid)
    found = [*workers.children(owner)]
    for pool in spec.pools:
        found += worker_pool.children(owner, spec, pool, settings)
    if spec.router.type is RouterType.BUILT_IN:
        found += router.children(owner, spec, settings)
        found += inference_pool.children(owner, spec)
    ordered = sorted(found, key=lambda child: (APPLY_ORDER.index(child["kind"]), child["metadata"]["name"]))
    return tuple(json.loads(json.dumps(child)) for child in ordered)  # plain data that shares no part
