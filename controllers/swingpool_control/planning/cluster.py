"""From a mix of workers to the InferenceCluster that has it."""

from collections.abc import Mapping

from swingpool_control import names
from swingpool_control.api.v1alpha1 import InferenceClusterSpec, Pool, PoolRole, Replicas
from swingpool_control.engine.model import PerformanceModel
from swingpool_control.planning.mix import Mix, Workers

_SUFFIX = {PoolRole.PREFILL: "prefill", PoolRole.DECODE: "decode", PoolRole.SWING: "swing"}


def pools(asked: InferenceClusterSpec, chosen: Mix, *, fixed: bool) -> tuple[tuple[Pool, str], ...]:
    """Return the pools of a mix, each with the name of the asked-for pool that it came from.

    Args:
        asked: the spec that was planned for.
        chosen: how many workers.
        fixed: whether swing pools keep all their workers; else they may shrink to what quiet times need.
    """
    found: list[tuple[Pool, str]] = []
    for pool, workers in zip(asked.pools, chosen.workers, strict=True):
        parts = _parts(workers)
        for role, (least, most) in parts.items():
            name = pool.name if len(parts) == 1 else _name(pool.name, role, {one.name for one in asked.pools})
            replicas = Replicas(min=most if fixed else least, max=most)
            found.append((pool.model_copy(update={"name": name, "role": role, "replicas": replicas}), pool.name))
    return tuple(found)


def spec(asked: InferenceClusterSpec, chosen: Mix, *, fixed: bool) -> InferenceClusterSpec:
    """Return the InferenceCluster's spec; see `pools`."""
    return asked.model_copy(update={"pools": tuple(pool for pool, _ in pools(asked, chosen, fixed=fixed))})


def models(
    asked: InferenceClusterSpec, chosen: Mix, known: Mapping[str, PerformanceModel]
) -> dict[str, PerformanceModel]:
    """Return the performance model of each pool of a mix."""
    return {pool.name: known[origin] for pool, origin in pools(asked, chosen, fixed=True)}


def _parts(workers: Workers) -> dict[PoolRole, tuple[int, int]]:
    """Return the pools that a kind of worker fills: role, fewest and most."""
    parts = {
        PoolRole.PREFILL: (workers.prefill, workers.prefill),
        PoolRole.DECODE: (workers.decode, workers.decode),
        PoolRole.SWING: (workers.least_swing, workers.swing),
    }
    return {role: counts for role, counts in parts.items() if counts[1]}


def _name(pool: str, role: PoolRole, taken: set[str]) -> str:
    """Return a name for a part of a pool that no other pool has."""
    suffix = _SUFFIX[role]
    name = f"{pool[: names.MAX_POOL_NAME - len(suffix) - 1].rstrip('-')}-{suffix}"
    number = 1
    while name in taken:
        number += 1
        name = f"{pool[: names.MAX_POOL_NAME - len(suffix) - 3].rstrip('-')}-{suffix}{number}"
    return name
