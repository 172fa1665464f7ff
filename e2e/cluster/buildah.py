"""Images without a Docker engine or a registry: buildah, a base made of Debian's packages, wheels from a cache."""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from e2e.cluster.commands import run
from e2e.cluster.imagestore import ImageStore
from e2e.cluster.interface import ClusterError, Progress
from e2e.cluster.local import packages
from e2e.cluster.paths import ROOT, cache
from swingpool.compiled.core import PICKER
from tools import compiled

_SUITE = "bookworm"
_PYTHON = "3.11"
"""The Python of that suite: the wheels must fit it, whatever Python runs here."""
_OPTIONS = (
    "--variant=minbase",
    "--include=python3,python3-venv,ca-certificates",
    *(f"--dpkgopt=path-exclude=/usr/share/{folder}/*" for folder in ("doc", "man", "locale", "info")),
)
BASE_KEY = hashlib.sha256(repr((_SUITE, _OPTIONS)).encode()).hexdigest()[:12]
"""Changes with the base image."""
_ENVIRONMENT = {"BUILDAH_ISOLATION": "chroot"}


def store() -> ImageStore:
    """Return where the images that were built here are kept."""
    return ImageStore(cache() / "images")


def build(image: str, progress: Progress) -> None:
    """Build the tree's Dockerfile under a name. Raises ClusterError if that fails."""
    packages.ensure(progress)
    begin = time.monotonic()
    base = _base(progress)
    wheels = _wheels(progress)
    picker = _compiled(progress)
    progress(f"building {image} with buildah")
    command = [
        *_buildah("build"),
        "--layers",
        f"--build-arg=BASE={base}",
        "--build-arg=PIP_NO_INDEX=1",
        "--build-arg=PIP_FIND_LINKS=/wheels",
        f"--volume={wheels}:/wheels:ro",
        f"--volume={picker}:/compiled:ro",
        f"--tag={image}",
        str(ROOT),
    ]
    _run(command)
    _keep(image)
    progress(f"built {image} in {time.monotonic() - begin:.0f} s")


def _keep(image: str) -> None:
    """Move an image from buildah's store into ours, past the file system."""
    push = [*_buildah("push"), "--quiet", image, f"docker-archive:/dev/stdout:{image}"]
    with subprocess.Popen(
        push, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=os.environ | _ENVIRONMENT
    ) as pushing:
        assert pushing.stdout is not None
        assert pushing.stderr is not None
        store().add(image, pushing.stdout)
        words = pushing.stderr.read().decode()
    if pushing.returncode != 0:
        raise ClusterError(f"{' '.join(push)} failed:\n{words.strip()}")


def _base(progress: Progress) -> str:
    """Return the name of the base image: a small Debian with Python, made once."""
    image = f"localhost/swingpool-base:{BASE_KEY}"
    if _succeeds([*_buildah("inspect"), "--type", "image", image]):
        return image
    progress(f"making the base image from Debian {_SUITE} (once; about a minute)")
    tree = cache() / f"base-{BASE_KEY}.tar"
    _run(["mmdebstrap", *_OPTIONS, _SUITE, str(tree)])
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
    key = hashlib.sha256(requirements.read_bytes() + f"{builder}{_PYTHON}".encode()).hexdigest()[:16]
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
    target = ["--only-binary=:all:", f"--python-version={_PYTHON}"]
    _run([*download, *target, "--require-hashes", "--requirement", str(requirements)])
    _run([*download, *target, builder])
    partial.rename(folder)
    return folder


def _compiled(progress: Progress) -> Path:
    """Return a folder with the compiled picker, or with nothing if it cannot be compiled for the image's Python."""
    folder = cache() / "for-image"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    if f"{sys.version_info.major}.{sys.version_info.minor}" != _PYTHON:
        progress(f"the image's picker is not compiled: that takes Python {_PYTHON}")
        return folder
    try:
        made = compiled.build(PICKER)
    except compiled.NotCompiledError as error:
        progress(f"the image's picker is not compiled: {error}")
    else:
        shutil.copytree(made, folder / made.name)
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


def _succeeds(command: Sequence[str | Path]) -> bool:
    return run(command, environment=_ENVIRONMENT, check=False).returncode == 0


def _run(command: Sequence[str | Path]) -> str:
    return run(command, environment=_ENVIRONMENT).stdout
