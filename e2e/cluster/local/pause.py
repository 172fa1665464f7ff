"""The image that holds a pod's namespaces: one static program in one layer, made here without an image builder."""

import hashlib
import io
import json
import platform
import tarfile
from pathlib import Path

from e2e.cluster.binaries import binaries
from e2e.cluster.interface import Progress
from e2e.cluster.local.config import PAUSE_IMAGE


def archive(progress: Progress) -> Path:
    """Return an archive of the pause image in Docker's format, making it if it is not there."""
    program = binaries("pause", progress=progress)["pause"]
    path = program.with_suffix(".tar")
    if not path.exists():
        partial = path.with_suffix(".partial")
        partial.write_bytes(build(program.read_bytes(), machine=platform.machine()))
        partial.rename(path)
    return path


def build(program: bytes, *, machine: str) -> bytes:
    """Return an image archive whose only file is `/pause`."""
    layer = _tar({"pause": program}, mode=0o755)
    digest = hashlib.sha256(layer).hexdigest()
    configuration = {
        "architecture": {"x86_64": "amd64", "aarch64": "arm64"}.get(machine, machine),
        "os": "linux",
        "config": {"Entrypoint": ["/pause"], "User": "65535:65535"},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
        "history": [{}],
    }
    encoded = json.dumps(configuration).encode()
    name = f"{hashlib.sha256(encoded).hexdigest()}.json"
    manifest = [{"Config": name, "RepoTags": [PAUSE_IMAGE], "Layers": [f"{digest}/layer.tar"]}]
    return _tar({name: encoded, f"{digest}/layer.tar": layer, "manifest.json": json.dumps(manifest).encode()})


def _tar(files: dict[str, bytes], *, mode: int = 0o644) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), mode
            tar.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()
