"""Whether this machine has a Docker engine that answers, and which provider follows from it."""

import os
import shutil
import subprocess
from functools import lru_cache

from e2e.cluster.interface import ClusterError

CHOICE = "SWINGPOOL_CLUSTER"
"""Environment variable that forces a provider."""
_PROVIDERS = ("kind", "local")
_PATIENCE_S = 15.0


def provider() -> str:
    """Return `kind` where a Docker engine answers, else `local`; the environment's choice goes first."""
    choice = os.environ.get(CHOICE)
    if choice and choice not in _PROVIDERS:
        raise ClusterError(f"{CHOICE}={choice}: choose {' or '.join(_PROVIDERS)}")
    return choice or ("kind" if docker_answers() else "local")


@lru_cache
def docker_answers() -> bool:
    """Whether a Docker engine, not just its command, is there."""
    if shutil.which("docker") is None:
        return False
    try:
        asked = subprocess.run(
            ["docker", "version", "--format", "{{.Server.Version}}"],
            capture_output=True,
            check=False,
            timeout=_PATIENCE_S,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return asked.returncode == 0
