"""Compiles the hot parts of the core and of the picker with mypyc, from the sources that run everywhere.

What comes of a part is a folder that holds copies of the packages with the compiled modules beside their sources. Its
name is a digest of what it was made from, so it is never older than the sources; `swingpool simulate`, `plan` and
`picker` take theirs where it lies, and plain Python where it does not.
"""

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from dataclasses import dataclass
from pathlib import Path

import swingpool

CORE = "SWINGPOOL_CORE"
"""Variable that keeps to plain Python with the value `python`."""
CACHE = "SWINGPOOL_CACHE"
PACKAGE = "swingpool_control"
SHELL = Path(swingpool.__file__).parent
"""Where the picker lies, and what it is checked against."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What is compiled together, and taken together."""

    name: str
    hot: tuple[str, ...]
    """Modules of the core, by file, each once."""
    cold: tuple[str, ...]
    """Names of files among them that need not be compiled."""
    picker: tuple[str, ...] = ()
    """Modules of the picker, by name; no other package of the shell is compiled."""


SIMULATION = Part(
    name="simulation",
    hot=(
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
    ),
    cold=(
        "__init__.py",
        "at_once.py",
        "control.py",
        "estimate.py",
        "limits.py",
        "objectives.py",
        "of_spec.py",
        "openai.py",
        "overload.py",
        "placer.py",
        "settings.py",
        "tariff.py",
        "trouble.py",
    ),
)
"""What simulated requests, iterations and events go through."""

PICKER = Part(
    name="picker",
    hot=("engine/curve.py", "engine/linear.py", "engine/model.py", "placement/*.py", "sizing/recent.py"),
    cold=("__init__.py", "limits.py", "objectives.py", "of_spec.py", "settings.py"),
    picker=(
        "accesslog",
        "answers",
        "body",
        "desk",
        "extproc",
        "fleet",
        "flow",
        "gateway",
        "handover",
        "header_blocks",
        "http2",
        "journal",
        "leg",
        "requests",
        "rpc",
        "series",
        "traffic",
        "wire",
        "worker",
    ),
)
"""What each request goes through in the picker."""

PARTS = {part.name: part for part in (SIMULATION, PICKER)}

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
    """A part cannot be compiled here; the message says why. It runs all the same, only slower."""


def sources() -> Path:
    """Return the folder of the core that this process would import."""
    found = importlib.util.find_spec(PACKAGE)
    if found is None or found.origin is None:
        raise NotCompiledError(f"{PACKAGE} is not installed")
    return Path(found.origin).parent


def cache() -> Path:
    """Return where compiled parts lie, unless something else is said."""
    given = os.environ.get(CACHE)
    # Where there is no home directory, as in some containers, nothing is found.
    return Path(given or os.path.expanduser("~/.cache/swingpool")) / "compiled"


def modules(of: Path, part: Part = SIMULATION) -> list[str]:
    """Return what is compiled of a part, relative to the folder above the packages."""
    found = sorted({path for pattern in part.hot for path in of.glob(pattern) if path.name not in part.cold})
    core = [str(path.relative_to(of.parent)) for path in found]
    return [*core, *(f"{SHELL.name}/picker/{name}.py" for name in part.picker)]


def folder(of: Path, built: Path, part: Part = SIMULATION) -> Path:
    """Return where a compiled part lies, or would lie, that belongs to sources as they are."""
    digest = hashlib.sha256()
    # The suffix names the Python and the platform that compiled modules are for.
    digest.update(f"{sysconfig.get_config_var('EXT_SUFFIX')} {part} {CONFIGURATION} {BUILD}".encode())
    for package in (of, SHELL / "picker") if part.picker else (of,):
        for path in sorted(package.rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts and path.suffix != ".so":
                digest.update(f"{path.relative_to(package)}\0".encode() + path.read_bytes() + b"\0")
    return built / digest.hexdigest()[:20]


def build(of: Path, built: Path, part: Part = SIMULATION) -> Path:
    """Compile a part unless that has been done, and return the folder; takes a minute or two.

    Raises:
        NotCompiledError: mypy or setuptools is missing, there is no compiler, or it fails.
    """
    target = folder(of, built, part)
    if target.is_dir():
        return target
    _check_tools()
    built.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=built, prefix=".") as scratch:
        made = Path(scratch) / "made"
        for package in (of, SHELL) if part.picker else (of,):
            shutil.copytree(package, made / package.name, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
        configuration = Path(scratch) / "mypy.ini"
        configuration.write_text(CONFIGURATION, encoding="utf-8")
        command = [sys.executable, "-c", BUILD, str(configuration), *modules(of, part)]
        ended = subprocess.run(command, cwd=made, capture_output=True, text=True, check=False)
        if ended.returncode:
            raise NotCompiledError(f"mypyc or the C compiler failed:\n{(ended.stdout + ended.stderr)[-4000:]}")
        for left in ("build", ".mypy_cache"):
            shutil.rmtree(made / left, ignore_errors=True)
        if part.picker:
            _leave_the_picker(made / SHELL.name)
        try:
            made.rename(target)
        except OSError:  # someone else was faster
            if not target.is_dir():
                raise
    return target


def use(part: Part) -> Path | None:
    """Let this process import a compiled part, if there is one of these very sources; return where it lies.

    It must be called before the core is imported for the first time.
    """
    if os.environ.get(CORE) == "python" or PACKAGE in sys.modules:
        return None
    try:
        found = folder(sources(), cache(), part)
    except (NotCompiledError, OSError):
        return None
    if not found.is_dir():
        return None
    sys.path.insert(0, str(found))
    if part.picker:
        swingpool.__path__.insert(0, str(found / SHELL.name))
    importlib.invalidate_caches()
    return found


def interpreted(part: Part) -> list[str]:
    """Return the modules of a part that this process has imported and runs in plain Python."""
    named = (name.removesuffix(".py").replace("/", ".") for name in modules(sources(), part))
    return [name for name in named if name in sys.modules and str(sys.modules[name].__file__).endswith(".py")]


def why_interpreted(part: Part) -> str:
    """Return why a part that is not compiled is not."""
    if os.environ.get(CORE) == "python":
        return f"{CORE}=python asks for it"
    return (
        f"nothing that was compiled from these sources lies in {cache()}: `swingpool compile {part.name}` puts it there"
    )


def _leave_the_picker(package: Path) -> None:
    """Take away the rest of the shell, which was needed for its types: it is imported from where it is installed."""
    for path in package.iterdir():
        if path.is_dir() and path.name != "picker":
            shutil.rmtree(path)
        elif path.is_file():
            path.unlink()


def _check_tools() -> None:
    for tool in ("mypyc", "setuptools"):
        if importlib.util.find_spec(tool) is None:
            raise NotCompiledError(f"{tool} is not installed: pip install 'swingpool[compiled]'")
    compiler = os.environ.get("CC") or (sysconfig.get_config_var("CC") or "cc").split()[0]
    if shutil.which(compiler) is None:
        raise NotCompiledError(f"there is no C compiler: {compiler} is not on the path")
