"""A cluster with swing pools, as a policy without such would have it: each becomes a prefill and a decode pool.

Its workers are halved at the start, and either half may grow to all of them, so that nobody is short of room.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeVar

from swingpool_control import names
from swingpool_control.api.v1alpha1 import InferenceClusterSpec, Pool, PoolRole, ReplicaMode
from swingpool_control.simulation.pods import at_creation
from swingpool_control.simulation.tariff import Tariff

Known = TypeVar("Known")


def unswung(spec: InferenceClusterSpec, replicas: Mapping[str, int]) -> tuple[InferenceClusterSpec, dict[str, int]]:
    """Return the spec without swing pools, and the workers at the start by its pools.

    Args:
        spec: the cluster's spec.
        replicas: workers at the start, by pool, where they are not the spec's.
    """
    if all(pool.role is not PoolRole.SWING for pool in spec.pools):
        return spec, dict(replicas)
    pools: list[dict[str, Any]] = []
    start: dict[str, int] = {}
    for pool in spec.pools:
        count = replicas.get(pool.name, at_creation(pool))
        if pool.role is not PoolRole.SWING:
            pools.append(_content(pool))
            start[pool.name] = count
            continue
        for role, share, least in (
            (PoolRole.PREFILL, count // 2, pool.replicas.min // 2),
            (PoolRole.DECODE, count - count // 2, pool.replicas.min - pool.replicas.min // 2),
        ):
            half = _half(pool, role, share=share, least=least)
            pools.append(half)
            start[half["name"]] = share
    content = spec.model_dump(by_alias=True, mode="json", exclude_none=True) | {"pools": pools}
    return InferenceClusterSpec.model_validate(content), start


def unswung_tariff(spec: InferenceClusterSpec, tariff: Tariff) -> Tariff:
    """Return the tariff for the spec without swing pools: both halves of one have its prices and powers."""
    return replace(tariff, workers=halved(spec, tariff.workers), draws=halved(spec, tariff.draws))


def halved(spec: InferenceClusterSpec, by_pool: Mapping[str, Known]) -> dict[str, Known]:
    """Return what is known by pool, for the spec without swing pools: both halves of one have what it has."""
    found = dict(by_pool)
    for pool in spec.pools:
        if pool.role is PoolRole.SWING and pool.name in found:
            whole = found.pop(pool.name)
            found |= {_name(pool, role): whole for role in (PoolRole.PREFILL, PoolRole.DECODE)}
    return found


def _half(pool: Pool, role: PoolRole, *, share: int, least: int) -> dict[str, Any]:
    half = _content(pool) | {"name": _name(pool, role), "role": role.value}
    if pool.replicas.mode is ReplicaMode.AUTO:
        half["replicas"] = {"min": least, "max": pool.replicas.max}
    elif pool.replicas.mode is ReplicaMode.FIXED:
        half["replicas"] = {"mode": "Fixed", "count": share}
    return half


def _name(pool: Pool, role: PoolRole) -> str:
    suffix = f"-{role.value.lower()}"
    return pool.name[: names.MAX_POOL_NAME - len(suffix)] + suffix


def _content(pool: Pool) -> dict[str, Any]:
    return pool.model_dump(by_alias=True, mode="json", exclude_none=True)
