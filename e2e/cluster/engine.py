"""Whether this machine has a Docker engine that answers."""

import shutil
import subprocess
from functools import lru_cache

_PATIENCE_S = 15.0


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
