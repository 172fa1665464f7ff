"""The chart as tests render and install it."""

from functools import cache
from pathlib import Path
from typing import Any

import yaml

from e2e.cluster import tools

CHART = Path(__file__).parents[2] / "charts" / "swingpool"
RELEASE = "swingpool"
NAMESPACE = "chart-system"
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""The definition is long, and libyaml ten times as quick."""


class Helm(tools.Helm):
    """Helm for the chart's tests."""

    def render(self, *arguments: str) -> list[dict[str, Any]]:
        """Return the manifests that the chart makes of some values. Raises ClusterError with Helm's words."""
        return [manifest for manifest in yaml.load_all(_rendered(arguments), Loader=_LOADER) if manifest]


@cache
def _rendered(arguments: tuple[str, ...]) -> str:
    return tools.Helm().run("template", RELEASE, str(CHART), "--namespace", NAMESPACE, *arguments).stdout
