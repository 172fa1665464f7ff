"""What the picker places requests by: the part of the cluster's spec, and the profile, that lie beside it as files."""

import logging
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import ValidationError

from swingpool_control.api.v1alpha1 import InferenceClusterSpec
from swingpool_control.engine.model import PerformanceModel
from swingpool_control.figures import Unknown
from swingpool_control.placement.of_spec import settings_of
from swingpool_control.placement.settings import PlacementSettings
from swingpool_control.sizing import models

log = logging.getLogger(__name__)


class UnusableSpecError(ValueError):
    """The file holds no spec."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """What placement goes by."""

    settings: PlacementSettings = field(default_factory=PlacementSettings)
    models: dict[str, PerformanceModel] = field(default_factory=dict)
    """By pool; of a pool that is missing nothing is known but what its workers show."""
    base_names: tuple[str, ...] = ()
    """What the model itself is called: other names are adapters'. None if that is not known."""


def read(spec_file: Path | None, profile_file: Path | None) -> Given:
    """Return what the files say; without a spec, the defaults.

    Raises:
        OSError: the spec cannot be read.
        UnusableSpecError: it is none.
    """
    if spec_file is None:
        return Given()
    try:
        spec = InferenceClusterSpec.model_validate_json(spec_file.read_bytes())
    except ValidationError as error:
        raise UnusableSpecError(f"{spec_file} holds no usable spec: {error}") from error
    found: dict[str, PerformanceModel] = {}
    for pool, model in models.of(spec, config_map_text=_text(profile_file)).items():
        if isinstance(model, Unknown):
            log.warning("pool %s has no performance profile, so its workers' speed is learnt: %s", pool, model.why)
        else:
            found[pool] = model
    base_names = (spec.model.name, *spec.model.served_names)
    return Given(settings=settings_of(spec), models=found, base_names=base_names)


def _text(file: Path | None) -> str | Unknown | None:
    if file is None:
        return None
    try:
        return file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        return Unknown(f"{file} cannot be read: {error}")
