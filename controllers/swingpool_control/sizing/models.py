"""The performance model of each pool, by what the spec says of profile, engine and accelerator."""

from collections.abc import Mapping

from swingpool_control.api.v1alpha1 import EngineType, InferenceClusterSpec, Pool
from swingpool_control.engine import profile
from swingpool_control.engine.model import PerformanceModel
from swingpool_control.figures import Unknown

SIMULATED_PROFILE = "demo"
"""What simulated workers run by if the spec names no profile."""


def of(
    spec: InferenceClusterSpec, *, config_map_text: str | Unknown | None = None
) -> Mapping[str, PerformanceModel | Unknown]:
    """Return the performance model of each pool by its name, or why it has none.

    Args:
        spec: the cluster's spec.
        config_map_text: text under the key that `spec.profile.configMap` names, or why it could not be read; None if
            the spec names no ConfigMap.
    """
    return {pool.name: _model(spec, pool, config_map_text) for pool in spec.pools}


def powers(spec: InferenceClusterSpec, *, config_map_text: str | Unknown | None = None) -> dict[str, profile.Power]:
    """Return what a worker of each pool draws by its name; pools of which nobody says it are missing."""
    found: dict[str, profile.Power] = {}
    for pool in spec.pools:
        try:
            chosen = _profile(spec, pool, config_map_text)
        except profile.ProfileError:
            continue
        if not isinstance(chosen, Unknown) and chosen.power is not None:
            found[pool.name] = chosen.power
    return found


def _model(spec: InferenceClusterSpec, pool: Pool, text: str | Unknown | None) -> PerformanceModel | Unknown:
    try:
        chosen = _profile(spec, pool, text)
    except profile.ProfileError as error:
        return Unknown(str(error))
    if isinstance(chosen, Unknown):
        return chosen
    model = chosen.model(max_batched_tokens=pool.engine.max_batched_tokens, max_sequences=pool.engine.max_sequences)
    if spec.engine.type is EngineType.SIMULATED:
        speedup = float(spec.engine.simulated.speedup)
        return model.faster(speedup) if speedup > 0 else Unknown("spec.engine.simulated.speedup is zero")
    return model


def _profile(spec: InferenceClusterSpec, pool: Pool, text: str | Unknown | None) -> profile.Profile | Unknown:
    reference = spec.profile
    if reference is not None and reference.config_map is not None:
        origin = f"ConfigMap {reference.config_map.name}, key {reference.config_map.key}"
        if text is None:
            return Unknown(f"{origin} was not read")
        return text if isinstance(text, Unknown) else profile.parse(text, origin=origin)
    if reference is not None and reference.built_in is not None:
        return profile.built_in(reference.built_in)
    product = pool.accelerator.product
    for name in (spec.model.name, spec.model.source):
        chosen = None if name is None else profile.choose(model=name, product=product)
        if chosen is not None:
            return chosen
    if spec.engine.type is EngineType.SIMULATED:
        return profile.built_in(SIMULATED_PROFILE)
    return Unknown(f"no built-in profile fits {spec.model.name} on {product or 'any accelerator'}; set spec.profile")
