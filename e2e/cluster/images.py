"""The project's container image, built on this machine by Docker or, without an engine or a registry, by buildah.

Its name carries a hash of everything that goes into it, so that a build that is there is never repeated and a cluster
never runs code other than the tree's.
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from e2e.cluster import engine
from e2e.cluster.interface import ClusterError, Progress
from e2e.cluster.paths import ROOT, cache, lock

REPOSITORY = "localhost/swingpool"
DEVELOPMENT = f"{REPOSITORY}:dev"
"""A second name, on nodes, of the image that was loaded last."""
_INPUTS = (
    "Dockerfile",
    "LICENSE",
    "README.md",
    "pyproject.toml",
    "requirements/runtime.lock",
    "operator",
    "controllers",
)
_BASE_SUITE = "bookworm"
_BASE_PYTHON = "3.11"
"""The Python of that suite: the wheels must fit it, whatever Python runs here."""
_BASE_OPTIONS = (
    "--variant=minbase",
    "--include=python3,python3-venv,ca-certificates",
    *(f"--dpkgopt=path-exclude=/usr/share/{folder}/*" for folder in ("doc", "man", "locale", "info")),
)
_KEPT_ARCHIVES = 3


def name() -> str:
    """Return the name that the image of the present tree has: `localhost/swingpool:<hash of its content>`."""
    digest = hashlib.sha256(repr((_BASE_SUITE, _BASE_OPTIONS)).encode())
    for path in _inputs():
        digest.update(f"{path.relative_to(ROOT)}\0".encode() + path.read_bytes() + b"\0")
    return f"{REPOSITORY}:{digest.hexdigest()[:16]}"


def build(progress: Progress) -> str:
    """Build the image of the present tree unless it is there; return its name. Raises ClusterError if that fails."""
    image = name()
    with lock("image", progress):
        if engine.docker_answers():
            _build_by_docker(image, progress)
        elif not _archive_path(image).exists():
            _build_by_buildah(image, progress)
    return image


def archive(image: str) -> Path:
    """Return an archive of an image that was built here. Raises ClusterError if there is none."""
    path = _archive_path(image)
    if not path.exists() and engine.docker_answers():
        path.parent.mkdir(parents=True, exist_ok=True)
        _run(["docker", "save", "--output", str(path), image])
    if not path.exists():
        raise ClusterError(f"image {image} was not built on this machine: run `make image`")
    path.touch()
    return path


def second_name(image: str) -> str:
    """Give an image that was built here a second name, to roll it out as another one; return the name."""
    second = f"{image}-again"
    if engine.docker_answers():
        _run(["docker", "tag", image, second])
    elif not _archive_path(second).exists():
        _push(image, second)
    return second


def _inputs() -> Iterator[Path]:
    for entry in _INPUTS:
        path = ROOT / entry
        if path.is_file():
            yield path
        else:
            yield from sorted(f for f in path.rglob("*") if f.is_file() and "__pycache__" not in f.parts)


def _archive_path(image: str) -> Path:
    return cache() / "images" / f"{image.rpartition('/')[2].replace(':', '-')}.tar"


def _build_by_docker(image: str, progress: Progress) -> None:
    if _succeeds(["docker", "image", "inspect", image]):
        return
    progress(f"building {image} with Docker")
    _run(["docker", "build", "--tag", image, "--tag", DEVELOPMENT, str(ROOT)])


def _build_by_buildah(image: str, progress: Progress) -> None:
    begin = time.monotonic()
    base = _base(progress)
    wheels = _wheels(progress)
    progress(f"building {image} with buildah")
    command = [
        *_buildah("build"),
        "--layers",
        f"--build-arg=BASE={base}",
        "--build-arg=PIP_NO_INDEX=1",
        "--build-arg=PIP_FIND_LINKS=/wheels",
        f"--volume={wheels}:/wheels:ro",
        f"--tag={image}",
        str(ROOT),
    ]
    _run(command)
    path = _push(image, image)
    _forget_old_archives()
    size_mb = path.stat().st_size / 1e6
    progress(f"built {image} ({size_mb:.0f} MB) in {time.monotonic() - begin:.0f} s")


def _push(image: str, name: str) -> Path:
    """Write an image into its archive under a name."""
    path = _archive_path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    partial.unlink(missing_ok=True)
    _run([*_buildah("push"), image, f"docker-archive:{partial}:{name}"])
    partial.rename(path)
    return path


def _base(progress: Progress) -> str:
    """Return the name of the base image: a small Debian with Python, made once."""
    key = hashlib.sha256(repr((_BASE_SUITE, _BASE_OPTIONS)).encode()).hexdigest()[:12]
    image = f"localhost/swingpool-base:{key}"
    if _succeeds([*_buildah("inspect"), "--type", "image", image]):
        return image
    progress(f"making the base image from Debian {_BASE_SUITE} (once; about a minute)")
    folder = cache() / "base"
    folder.mkdir(exist_ok=True)
    tree = folder / f"{key}.tar"
    if not tree.exists():
        partial = tree.with_suffix(".partial.tar")
        _run(["mmdebstrap", *_BASE_OPTIONS, _BASE_SUITE, str(partial)])
        partial.rename(tree)
    container = _run([*_buildah("from"), "scratch"]).strip()
    try:
        _run([*_buildah("add"), container, str(tree), "/"])
        _run([*_buildah("commit"), container, image])
    finally:
        _run([*_buildah("rm"), container])
    tree.unlink()
    return image


def _wheels(progress: Progress) -> Path:
    """Return a folder with every wheel that the Dockerfile installs, downloaded once for each state of the lock."""
    requirements = ROOT / "requirements" / "runtime.lock"
    builder = _locked("hatchling")
    key = hashlib.sha256(requirements.read_bytes() + f"{builder}{_BASE_PYTHON}".encode()).hexdigest()[:16]
    folder = cache() / "wheels" / key
    if folder.exists():
        return folder
    progress("downloading the image's Python packages (once for each state of the lock)")
    partial = folder.with_name(f"{key}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    download = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--disable-pip-version-check",
        "--dest",
        str(partial),
    ]
    target = ["--only-binary=:all:", f"--python-version={_BASE_PYTHON}"]
    _run([*download, *target, "--require-hashes", "--requirement", str(requirements)])
    _run([*download, *target, builder])
    partial.rename(folder)
    return folder


def _locked(package: str) -> str:
    """Return a package with the version that the development lock pins, such as `hatchling==1.27.0`."""
    text = (ROOT / "requirements" / "dev.lock").read_text()
    match = re.search(rf"^{re.escape(package)}==[^\s;]+", text, re.MULTILINE)
    if match is None:
        raise ClusterError(f"requirements/dev.lock does not pin {package}: run `make lock`")
    return match[0]


def _buildah(verb: str) -> list[str]:
    """Return the start of a buildah command: a store of our own, and mounts that end with the command."""
    store = cache() / "buildah"
    unshare = ["unshare", "--mount", "--propagation", "private", "--"]
    return [
        *unshare,
        "buildah",
        f"--root={store / 'root'}",
        f"--runroot={store / 'run'}",
        "--storage-driver=overlay",
        verb,
    ]


def _forget_old_archives() -> None:
    archives = sorted((cache() / "images").glob("*.tar"), key=lambda path: path.stat().st_mtime, reverse=True)
    for old in archives[_KEPT_ARCHIVES:]:
        old.unlink()


def _succeeds(command: Sequence[str]) -> bool:
    return subprocess.run(command, capture_output=True, check=False, env=_environment()).returncode == 0


def _run(command: Sequence[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=_environment())
    except FileNotFoundError as error:
        raise ClusterError(f"{command[0]}: {error}") from None
    if done.returncode != 0:
        tail = "\n".join((done.stdout + done.stderr).splitlines()[-25:])
        raise ClusterError(f"{' '.join(command)} failed:\n{tail}")
    return done.stdout


def _environment() -> dict[str, str]:
    return os.environ | {"BUILDAH_ISOLATION": "chroot"}
