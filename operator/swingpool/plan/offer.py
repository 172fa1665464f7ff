"""What is on offer: an InferenceCluster whose pools are accelerator types, and a performance profile for each."""

from dataclasses import dataclass
from pathlib import Path

from swingpool.simulate.cluster_file import ClusterFile, ClusterFileError
from swingpool.simulate.cluster_file import read as read_cluster
from swingpool_control.api.v1alpha1 import InferenceClusterSpec
from swingpool_control.engine.model import PerformanceModel
from swingpool_control.figures import Unknown
from swingpool_control.sizing import models


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """What a plan may use."""

    name: str
    spec: InferenceClusterSpec
    models: dict[str, PerformanceModel]
    """By pool."""


def read(path: Path, profiles: tuple[tuple[str, str], ...]) -> Offer:
    """Return what a file offers.

    Args:
        path: YAML with an InferenceCluster.
        profiles: pairs of a pool's name, empty for all pools, and a profile's name or file.

    Raises:
        ClusterFileError: it cannot be used, a pool has no profile, or a profile is for no pool.
    """
    for_all = next((profile for pool, profile in profiles if not pool), None)
    cluster = read_cluster(path, profile_of=for_all)
    known = {pool.name for pool in cluster.spec.pools}
    for pool, profile in profiles:
        if pool and pool not in known:
            raise ClusterFileError(
                f"--profile {pool}={profile}: there is no pool {pool}; there are {', '.join(sorted(known))}"
            )
    found = _models(cluster)
    for pool, profile in profiles:
        if pool:
            found |= {pool: _models(read_cluster(path, profile_of=profile))[pool]}
    for pool, model in found.items():
        if isinstance(model, Unknown):
            raise ClusterFileError(f"pool {pool}: {model.why}; or give it with --profile {pool}=NAME|FILE")
    return Offer(
        name=cluster.name,
        spec=cluster.spec,
        models={pool: model for pool, model in found.items() if not isinstance(model, Unknown)},
    )


def _models(cluster: ClusterFile) -> dict[str, PerformanceModel | Unknown]:
    return dict(models.of(cluster.spec, config_map_text=cluster.profile_text))
