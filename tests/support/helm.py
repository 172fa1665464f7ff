"""Helm as tests run it: the project's own binary, its state in a directory of the test's own."""

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from e2e.cluster.binaries import binaries

CHART = Path(__file__).parents[2] / "charts" / "swingpool"
RELEASE = "swingpool"
NAMESPACE = "chart-system"
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""The definition is long, and libyaml ten times as quick."""


class HelmError(Exception):
    """Helm refused; the message holds its words."""


@dataclass(frozen=True, kw_only=True)
class Helm:
    """Runs Helm, on a cluster if it is given one."""

    home: Path
    kubeconfig: Path | None = None

    def run(self, *arguments: str) -> str:
        """Run Helm and return what it printed. Raises HelmError if it fails."""
        cluster = [] if self.kubeconfig is None else ["--kubeconfig", str(self.kubeconfig)]
        command = [str(binaries("helm")["helm"]), *arguments, *cluster]
        homes = {f"HELM_{kind}_HOME": str(self.home / kind.lower()) for kind in ("CACHE", "CONFIG", "DATA")}
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | homes, timeout=60)
        if done.returncode != 0:
            raise HelmError(f"helm {' '.join(arguments)}: {done.stdout}{done.stderr}")
        return done.stdout

    def render(self, *arguments: str, chart: Path = CHART) -> list[dict[str, Any]]:
        """Return the manifests that the chart makes of some values."""
        text = self.run("template", RELEASE, str(chart), "--namespace", NAMESPACE, *arguments)
        return [manifest for manifest in yaml.load_all(text, Loader=_LOADER) if manifest]
