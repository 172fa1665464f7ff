"""The clients' environment: installed once into the cache, pinned with hashes, made anew when its pins change."""

import hashlib
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from e2e.cluster.interface import ClusterError, Progress
from e2e.cluster.paths import cache, lock

_HERE = Path(__file__).parent
REQUIREMENTS = _HERE / "requirements.lock"
TOKENIZER_SCRIPT = _HERE / "tokenizer.py"
_COMPLETE = ".complete"


@dataclass(frozen=True, slots=True)
class ClientsEnvironment:
    """Where the clients are."""

    directory: Path

    @property
    def python(self) -> Path:
        """The interpreter that has the clients' packages."""
        return self.directory / "bin" / "python"

    @property
    def aiperf(self) -> Path:
        """The load generator."""
        return self.directory / "bin" / "aiperf"

    @property
    def tokenizer(self) -> Path:
        """A tokenizer that the load generator makes prompts with."""
        return self.directory / "tokenizer"


def environment(progress: Progress) -> ClientsEnvironment:
    """Return the environment, made first if the cache lacks it.

    Raises:
        ClusterError: it cannot be made.
    """
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    made_of = REQUIREMENTS.read_bytes() + TOKENIZER_SCRIPT.read_bytes() + version.encode()
    found = ClientsEnvironment(cache() / "clients" / hashlib.sha256(made_of).hexdigest()[:16])
    with lock("clients", progress):
        if not (found.directory / _COMPLETE).exists():
            _install(found, progress)
    return found


def _install(place: ClientsEnvironment, progress: Progress) -> None:
    progress("installing the openai package and aiperf (once; a minute or two and 900 MB, it is cached)")
    begin_s = time.monotonic()
    uv = str(Path(sys.executable).with_name("uv"))
    place.directory.parent.mkdir(parents=True, exist_ok=True)
    _run([uv, "venv", "--quiet", "--clear", "--python", sys.executable, str(place.directory)])
    install = (uv, "pip", "install", "--quiet", "--no-deps", "--require-hashes", "--python", str(place.python))
    _run([*install, "-r", str(REQUIREMENTS)])
    _run([str(place.python), str(TOKENIZER_SCRIPT), str(place.tokenizer)])
    (place.directory / _COMPLETE).touch()
    progress(f"installed the clients in {time.monotonic() - begin_s:.0f} s")


def _run(command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        tail = "\n".join((done.stdout + done.stderr).splitlines()[-20:])
        raise ClusterError(f"the clients' environment cannot be made: {' '.join(command)}\n{tail}")
