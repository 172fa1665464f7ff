"""The project's container image, built on this machine by Docker or, without an engine or a registry, by buildah.

Its name carries a hash of everything that goes into it, so that a build that is there is never repeated and a cluster
never runs code other than the tree's.
"""

import hashlib
from collections.abc import Iterator
from pathlib import Path

from e2e.cluster import buildah
from e2e.cluster.commands import run
from e2e.cluster.engine import provider
from e2e.cluster.interface import Progress
from e2e.cluster.paths import ROOT, lock

REPOSITORY = "localhost/swingpool"
DEVELOPMENT = f"{REPOSITORY}:dev"
"""A second name, on nodes, of the image that was loaded last."""
_INPUTS = (
    "Dockerfile",
    "LICENSE",
    "README.md",
    "pyproject.toml",
    "requirements/compile.lock",
    "requirements/runtime.lock",
    "operator",
    "controllers",
)
_SECOND = "-again"


def name() -> str:
    """Return the name that the image of the present tree has: `localhost/swingpool:<hash of its content>`."""
    digest = hashlib.sha256(buildah.BASE_KEY.encode())
    for path in _inputs():
        digest.update(f"{path.relative_to(ROOT)}\0".encode() + path.read_bytes() + b"\0")
    return f"{REPOSITORY}:{digest.hexdigest()[:16]}"


def second_name(image: str) -> str:
    """Return another name for an image, which loads as the same image: to roll an update out that changes nothing."""
    return image + _SECOND


def first_name(image: str) -> str:
    """Return the name that an image was built under."""
    return image.removesuffix(_SECOND)


def other_names(image: str) -> list[str]:
    """Return the names, besides its own, that an image gets on the nodes when it is loaded under the given one."""
    return [image] if image != first_name(image) else [DEVELOPMENT]


def build(progress: Progress) -> str:
    """Build the image of the present tree unless it is there; return its name. Raises ClusterError if that fails."""
    image = name()
    with lock("image", progress):
        if provider() == "kind":
            _build_by_docker(image, progress)
        elif not buildah.store().has(image):
            buildah.build(image, progress)
    return image


def _inputs() -> Iterator[Path]:
    for entry in _INPUTS:
        path = ROOT / entry
        if path.is_file():
            yield path
        else:
            yield from sorted(f for f in path.rglob("*") if f.is_file() and "__pycache__" not in f.parts)


def _build_by_docker(image: str, progress: Progress) -> None:
    if run(["docker", "image", "inspect", image], check=False).returncode == 0:
        return
    progress(f"building {image} with Docker")
    run(["docker", "build", "--tag", image, ROOT])
