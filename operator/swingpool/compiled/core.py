"""Compiles the hot part of the core with mypyc, from the sources that run everywhere.

The result is a folder that holds a copy of the whole core with the compiled modules beside their sources. Its name is a
digest of what it was made from, so it is never older than the sources; `swingpool simulate` and `plan` take it where it
lies, and plain Python where it does not.
"""

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

CORE = "SWINGPOOL_CORE"
"""Variable that keeps to plain Python with the value `python`."""
CACHE = "SWINGPOOL_CACHE"
PACKAGE = "swingpool_control"
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

CONFIGURATION = """\
[mypy]
plugins = pydantic.mypy
explicit_package_bases = true
follow_imports = silent
ignore_missing_imports = true
"""

BUILD = """
import sys
from mypyc.build import mypycify
from setuptools import setup

extensions = mypycify(["--config-file", *sys.argv[1:]], opt_level="3", debug_level="0")
setup(name="swingpool-compiled", ext_modules=extensions, script_args=["-q", "build_ext", "--inplace", "-j2"])
"""


class NotCompiledError(RuntimeError):
    """The core cannot be compiled here; the message says why. It runs all the same, only slower."""


def sources() -> Path:
    """Return the folder of the core that this process would import."""
    found = importlib.util.find_spec(PACKAGE)
    if found is None or found.origin is None:
        raise NotCompiledError(f"{PACKAGE} is not installed")
    return Path(found.origin).parent


def cache() -> Path:
    """Return where compiled cores lie, unless something else is said."""
    given = os.environ.get(CACHE)
    return (Path(given) if given else Path.home() / ".cache" / "swingpool") / "compiled"


def modules(of: Path) -> list[str]:
    """Return what is compiled of the core's sources, relative to the folder above the package."""
    found = sorted({path for pattern in HOT for path in of.glob(pattern) if path.name not in COLD})
    return [str(path.relative_to(of.parent)) for path in found]


def folder(of: Path, built: Path) -> Path:
    """Return where the compiled core lies, or would lie, that belongs to sources as they are."""
    digest = hashlib.sha256()
    digest.update(f"{sys.version} {sysconfig.get_platform()} {HOT} {COLD} {CONFIGURATION} {BUILD}".encode())
    for path in sorted(of.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts and path.suffix != ".so":
            digest.update(f"{path.relative_to(of)}\0".encode() + path.read_bytes() + b"\0")
    return built / digest.hexdigest()[:20]


def build(of: Path, built: Path) -> Path:
    """Compile a core unless that has been done, and return the folder; takes a minute or two.

    Raises:
        NotCompiledError: mypy or setuptools is missing, there is no compiler, or it fails.
    """
    target = folder(of, built)
    if target.is_dir():
        return target
    _check_tools()
    built.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=built, prefix=".") as scratch:
        made = Path(scratch) / "made"
        shutil.copytree(of, made / of.name, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
        configuration = Path(scratch) / "mypy.ini"
        configuration.write_text(CONFIGURATION, encoding="utf-8")
        command = [sys.executable, "-c", BUILD, str(configuration), *modules(of)]
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


def use() -> Path | None:
    """Let this process import the compiled core, if there is one of these very sources; return where it lies.

    It must be called before the core is imported for the first time.
    """
    if os.environ.get(CORE) == "python" or PACKAGE in sys.modules:
        return None
    try:
        found = folder(sources(), cache())
    except (NotCompiledError, OSError):
        return None
    if not found.is_dir():
        return None
    sys.path.insert(0, str(found))
    importlib.invalidate_caches()
    return found


def _check_tools() -> None:
    for tool in ("mypyc", "setuptools"):
        if importlib.util.find_spec(tool) is None:
            raise NotCompiledError(f"{tool} is not installed: pip install 'swingpool[compiled]'")
    compiler = os.environ.get("CC") or (sysconfig.get_config_var("CC") or "cc").split()[0]
    if shutil.which(compiler) is None:
        raise NotCompiledError(f"there is no C compiler: {compiler} is not on the path")
