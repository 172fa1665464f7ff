"""The InferenceCluster to simulate, from the file that one would apply, and its profile."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from swingpool_control import names
from swingpool_control.api.v1alpha1 import InferenceClusterSpec, ProfileReference
from swingpool_control.conditions.view import InvalidSpecError, parse_spec
from swingpool_control.engine import profile
from swingpool_control.engine.model import PerformanceModel


class ClusterFileError(ValueError):
    """A file that holds no InferenceCluster that could be simulated: names the file and the field."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterFile:
    """What a file says."""

    name: str
    spec: InferenceClusterSpec
    profile_text: str | None
    """Text under the key that `spec.profile.configMap` names, if the file has that ConfigMap too."""
    models: Mapping[str, PerformanceModel] | None = None
    """By pool, where pools have profiles of their own; None for what the spec says."""


def read(path: Path, *, profile_of: str | None) -> ClusterFile:
    """Return the one InferenceCluster of a YAML file.

    Args:
        path: the file; a ConfigMap with the profile may stand in it too.
        profile_of: a built-in profile's name, or a profile's file, instead of what the spec says; None for that.

    Raises:
        ClusterFileError: it cannot be used.
    """
    documents = _documents(path)
    clusters = [one for one in documents if one.get("kind") == names.KIND]
    if len(clusters) != 1:
        raise ClusterFileError(f"{path}: holds {len(clusters)} objects of kind {names.KIND}; exactly one is simulated")
    try:
        spec = parse_spec(clusters[0])
    except InvalidSpecError as error:
        raise ClusterFileError(f"{path}: {error}") from error
    name = str((clusters[0].get("metadata") or {}).get("name") or path.stem)
    if profile_of is not None:
        reference, text = _given_profile(profile_of)
        return ClusterFile(name=name, spec=spec.model_copy(update={"profile": reference}), profile_text=text)
    return ClusterFile(name=name, spec=spec, profile_text=_config_map_text(path, spec, documents))


def _documents(path: Path) -> list[dict[str, Any]]:
    try:
        found = list(yaml.safe_load_all(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise ClusterFileError(f"{path}: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ClusterFileError(f"{path}: not YAML: {error}") from error
    return [one for one in found if isinstance(one, dict)]


def _given_profile(given: str) -> tuple[ProfileReference, str | None]:
    if "/" not in given and not given.endswith(".json"):
        try:
            profile.built_in(given)
        except profile.ProfileError as error:
            raise ClusterFileError(f"--profile: {error}; a file's name has a slash in it or ends in .json") from error
        return ProfileReference.model_validate({"builtIn": given}), None
    try:
        text = Path(given).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ClusterFileError(f"--profile {given}: {error}") from error
    return ProfileReference.model_validate({"configMap": {"name": "profile"}}), text


def _config_map_text(path: Path, spec: InferenceClusterSpec, documents: list[dict[str, Any]]) -> str | None:
    reference = None if spec.profile is None else spec.profile.config_map
    if reference is None:
        return None
    for document in documents:
        if document.get("kind") == "ConfigMap" and (document.get("metadata") or {}).get("name") == reference.name:
            text = (document.get("data") or {}).get(reference.key)
            if isinstance(text, str):
                return text
    raise ClusterFileError(
        f"{path}: spec.profile.configMap: the file has no ConfigMap {reference.name} with a key {reference.key}; "
        "add it, or give the profile with --profile"
    )
