"""The Job that measures a worker from within the cluster: what it is made of, and how its result is read.

It needs no rights: workers are named by address, and the profile comes out on its standard output, the last line that
is one. Its ServiceAccount has no token. What was measured lies on a volume of the pod, so that a container that fails
goes on where it was.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from swingpool_control.engine.profile import Profile, ProfileError, parse
from swingpool_control.resources.metadata import Manifest
from swingpool_control.resources.security import container_security_context, pod_security_context
from swingpool_control.resources.settings import RenderSettings

COMPONENT = "profiling"
KEPT_S = 86_400
"""How long a Job that has ended stays, with its log."""
FAILURES = 3
_LABELS = {"app.kubernetes.io/name": "swingpool", "app.kubernetes.io/component": COMPONENT}
_WORK = "/work"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOptions:
    """What a Job is made of."""

    name: str
    namespace: str
    image: str
    arguments: tuple[str, ...]
    """Of `swingpool profile measure`, without where it writes to."""
    deadline_s: int
    pull_secrets: tuple[str, ...] = ()


def manifests(options: JobOptions) -> tuple[Manifest, Manifest]:
    """Return the ServiceAccount and the Job."""
    place = {"name": options.name, "namespace": options.namespace, "labels": _LABELS}
    account = {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": place,
        "automountServiceAccountToken": False,
    }
    written = ("-o", "-", "--journal", f"{_WORK}/journal.jsonl")
    container = {
        "name": COMPONENT,
        "image": options.image,
        "command": ["swingpool", "profile", "measure"],
        "args": [*options.arguments, *written],
        "env": [{"name": "HOME", "value": _WORK}],
        "resources": {"requests": {"cpu": "200m", "memory": "256Mi"}, "limits": {"memory": "1Gi"}},
        "securityContext": container_security_context(read_only_root=True),
        "volumeMounts": [{"name": "work", "mountPath": _WORK}],
    }
    pod: Manifest = {
        "serviceAccountName": options.name,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "restartPolicy": "OnFailure",
        "securityContext": pod_security_context(RenderSettings(swingpool_image=options.image)),
        "containers": [container],
        "volumes": [{"name": "work", "emptyDir": {}}],
    }
    if options.pull_secrets:
        pod["imagePullSecrets"] = [{"name": secret} for secret in options.pull_secrets]
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": place,
        "spec": {
            "backoffLimit": FAILURES,
            "activeDeadlineSeconds": options.deadline_s,
            "ttlSecondsAfterFinished": KEPT_S,
            "template": {"metadata": {"labels": _LABELS}, "spec": pod},
        },
    }
    return account, job


def result(log: Iterable[str]) -> Profile | None:
    """Return the profile in a Job's log: the last line that is one; None if none is."""
    for line in reversed(list(log)):
        if line.startswith("{"):
            try:
                return parse(line, origin="the Job's log")
            except ProfileError:
                continue
    return None


def config_map(profile: Profile, *, name: str, namespace: str) -> Manifest:
    """Return the ConfigMap that holds a profile, as `spec.profile.configMap` names it."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": namespace, "labels": _LABELS},
        "data": {"profile.json": profile.model_dump_json(indent=2, exclude_none=True) + "\n"},
    }


def ended(job: Manifest) -> str | None:
    """Return how a Job ended: `Complete`, or `Failed` with why; None while it goes on."""
    conditions: Sequence[Manifest] = (job.get("status") or {}).get("conditions") or []
    for one in conditions:
        if one.get("status") == "True" and one.get("type") in ("Complete", "Failed"):
            why = one.get("message") or one.get("reason") or ""
            return str(one["type"]) if one["type"] == "Complete" else f"Failed: {why}"
    return None
