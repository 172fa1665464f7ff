"""Compile the hot part of the core with mypyc, from the sources that run everywhere: prints the folder for PYTHONPATH.

    PYTHONPATH=$(.venv/bin/python -m tools.compiled) .venv/bin/swingpool simulate ...

The folder holds a copy of the whole core with the compiled modules beside their sources. Its name is a digest of what
it was made from, so it is never older than the sources, and nothing finds it unless it is asked for.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCES = ROOT / "controllers" / "swingpool_control"
BUILT = ROOT / "build" / "compiled"
HOT = (
    "engine/batching.py",
    "engine/blocks.py",
    "engine/cache.py",
    "engine/curve.py",
    "engine/decoding.py",
    "engine/iterating.py",
    "engine/leases.py",
    "engine/linear.py",
    "engine/link.py",
    "engine/model.py",
    "engine/queues.py",
    "engine/sequence.py",
    "engine/work.py",
    "placement/*.py",
    "simulation/*.py",
    "sizing/recent.py",
)
"""What requests, iterations and events go through."""

COLD = (
    "__init__.py",
    "at_once.py",
    "candidates.py",
    "control.py",
    "estimate.py",
    "limits.py",
    "objectives.py",
    "of_spec.py",
    "openai.py",
    "overload.py",
    "place.py",
    "placer.py",
    "settings.py",
    "tariff.py",
    "trouble.py",
)
"""What need not be compiled, by file name."""

BUILD = """
import sys
from mypyc.build import mypycify
from setuptools import setup

extensions = mypycify(
    ["--config-file", sys.argv[1], "--follow-imports=silent", *sys.argv[2:]], opt_level="3", debug_level="0"
)
setup(name="swingpool-compiled", ext_modules=extensions, script_args=["-q", "build_ext", "--inplace", "-j2"])
"""


class NotCompiledError(RuntimeError):
    """The core cannot be compiled here; the message says why. It runs all the same, only slower."""


def modules(sources: Path = SOURCES) -> list[str]:
    """Return what is compiled, relative to the folder above the package."""
    found = sorted({path for pattern in HOT for path in sources.glob(pattern) if path.name not in COLD})
    return [str(path.relative_to(sources.parent)) for path in found]


def folder() -> Path:
    """Return where the compiled core lies, or would lie, that belongs to the sources as they are."""
    digest = hashlib.sha256()
    try:
        made_with = f"{version('mypy')} {sys.version} {sysconfig.get_platform()}"
    except PackageNotFoundError as error:
        raise NotCompiledError("mypy is not installed: it is among the development dependencies") from error
    digest.update(f"{made_with} {HOT} {COLD} {BUILD}".encode())
    for path in sorted(SOURCES.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            digest.update(f"{path.relative_to(SOURCES)}\0".encode() + path.read_bytes() + b"\0")
    return BUILT / digest.hexdigest()[:20]


def build() -> Path:
    """Compile the core unless that has been done, and return the folder; takes a minute or two.

    Raises:
        NotCompiledError: there is no compiler, or it fails.
    """
    target = folder()
    if target.is_dir():
        return target
    compiler = os.environ.get("CC") or (sysconfig.get_config_var("CC") or "cc").split()[0]
    if shutil.which(compiler) is None:
        raise NotCompiledError(f"there is no C compiler: {compiler} is not on the path")
    BUILT.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=BUILT, prefix=".") as scratch:
        made = Path(scratch) / "made"
        shutil.copytree(SOURCES, made / SOURCES.name, ignore=shutil.ignore_patterns("__pycache__"))
        command = [sys.executable, "-c", BUILD, str(ROOT / "pyproject.toml"), *modules()]
        ended = subprocess.run(command, cwd=made, capture_output=True, text=True, check=False)
        if ended.returncode:
            raise NotCompiledError(f"mypyc or the C compiler failed:\n{(ended.stdout + ended.stderr)[-4000:]}")
        for left in ("build", ".mypy_cache"):
            shutil.rmtree(made / left, ignore_errors=True)
        try:
            made.rename(target)
        except OSError:  # someone else was faster
            if not target.is_dir():
                raise
    return target


def main() -> int:
    try:
        print(build())
    except NotCompiledError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
