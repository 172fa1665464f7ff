"""Replicas of pools, by a field manager of their own, so that a new template never resets them.

Who does not own `spec.replicas` cannot lose it: the template is applied without the field by `swingpool`, the number by
`swingpool-scaler`. A Deployment is created with its number by `swingpool`, since the server would make it 1 otherwise;
the scaler takes it over before the template is applied again without it.
"""

from swingpool.kube import Object
from swingpool.kube.kinds import DEPLOYMENT
from swingpool.kube.objects import field, metadata, name_of, namespace_of, uid_of
from swingpool.manager.writes import Writes
from swingpool_control import names


def owned_by_template(deployment: Object) -> bool:
    """Whether the template's field manager still owns the number: the scaler must take it over before it is dropped."""
    return any(
        entry.get("manager") == names.FIELD_MANAGER and "f:replicas" in (field(entry, "fieldsV1", "f:spec") or {})
        for entry in metadata(deployment).get("managedFields") or ()
    )


async def set_replicas(writes: Writes, deployment: Object, replicas: int) -> Object:
    """Set the replicas of this very Deployment; 422 if another has its name now, 409 if none has."""
    return await writes.apply(
        {
            "apiVersion": DEPLOYMENT.api_version,
            "kind": DEPLOYMENT.kind,
            "metadata": {
                "name": name_of(deployment),
                "namespace": namespace_of(deployment),
                "uid": uid_of(deployment),
            },
            "spec": {"replicas": replicas},
        },
        field_manager=names.FIELD_MANAGER_REPLICAS,
    )


async def create(writes: Writes, manifest: Object, replicas: int | None) -> Object:
    """Create a pool's Deployment with a number of replicas, and leave the number to the scaler."""
    if replicas is None:
        return await writes.apply(manifest)
    live = await writes.apply({**manifest, "spec": {**manifest["spec"], "replicas": replicas}})
    await set_replicas(writes, live, replicas)
    return await writes.apply(manifest)


async def apply_template(writes: Writes, manifest: Object, live: Object) -> Object:
    """Apply a pool's Deployment without touching its number of replicas."""
    if owned_by_template(live):
        await set_replicas(writes, live, int(field(live, "spec", "replicas") or 0))
    return await writes.apply(manifest)
