"""Images as layers that are kept once, and archives of just those layers that a node lacks.

A change of the project's code so moves a megabyte rather than the whole image.
"""

import hashlib
import io
import json
import shutil
import tarfile
from collections.abc import Set
from pathlib import Path
from typing import IO

from e2e.cluster.interface import ClusterError

_KEPT_IMAGES = 30
_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_CONFIG = "application/vnd.oci.image.config.v1+json"
_LAYER = "application/vnd.oci.image.layer.v1.tar"


class ImageStore:
    """A directory with a file for each layer and each image's configuration, and a manifest for each image."""

    def __init__(self, directory: Path) -> None:
        self._manifests = directory / "manifests"
        self._blobs = directory / "blobs"

    def has(self, image: str) -> bool:
        """Whether an image is kept."""
        return self._manifest(image).exists()

    def add(self, image: str, archive: IO[bytes]) -> None:
        """Take an image from an archive in Docker's format, read once from start to end; layers must not be compressed.

        Raises ClusterError if the archive lacks a part of the image.
        """
        for directory in (self._manifests, self._blobs):
            directory.mkdir(parents=True, exist_ok=True)
        small: dict[str, bytes] = {}
        with tarfile.open(fileobj=archive, mode="r|") as tar:
            for entry in tar:
                content = tar.extractfile(entry) if entry.isfile() else None
                if content is None:
                    continue
                if entry.name.endswith(".json"):
                    small[entry.name] = content.read()
                elif entry.name.endswith(".tar") and not self._blob(entry.name.removesuffix(".tar")).exists():
                    self._keep(entry.name.removesuffix(".tar"), content)
        configuration = json.loads(small["manifest.json"])[0]["Config"]
        self._keep(configuration.removesuffix(".json"), io.BytesIO(small[configuration]))
        layers = [digest.removeprefix("sha256:") for digest in json.loads(small[configuration])["rootfs"]["diff_ids"]]
        if lacking := [layer for layer in layers if not self._blob(layer).exists()]:
            raise ClusterError(f"image {image}: the archive lacks the layers {lacking}")
        manifest = {
            "schemaVersion": 2,
            "mediaType": _MANIFEST,
            "config": self._descriptor(_CONFIG, configuration.removesuffix(".json")),
            "layers": [self._descriptor(_LAYER, layer) for layer in layers],
        }
        self._manifest(image).write_text(json.dumps(manifest))
        self._forget_old()

    def export(self, image: str, target: IO[bytes], *, present: Set[str]) -> None:
        """Write an OCI archive of an image, without the blobs whose digests are `present` where it goes.

        Raises ClusterError if the image is not kept.
        """
        if not self.has(image):
            raise ClusterError(f"image {image} was not built on this machine: run `make image`")
        encoded = self._manifest(image).read_bytes()
        manifest = json.loads(encoded)
        digest = _sha256(encoded)
        annotations = {"io.containerd.image.name": image}
        listed = {
            "mediaType": _MANIFEST,
            "digest": f"sha256:{digest}",
            "size": len(encoded),
            "annotations": annotations,
        }
        with tarfile.open(fileobj=target, mode="w|") as tar:
            _add(tar, "oci-layout", b'{"imageLayoutVersion": "1.0.0"}')
            for blob in {each["digest"]: each for each in (manifest["config"], *manifest["layers"])}:
                if blob not in present:
                    tar.add(
                        self._blob(blob.removeprefix("sha256:")), arcname=f"blobs/sha256/{blob.removeprefix('sha256:')}"
                    )
            _add(tar, f"blobs/sha256/{digest}", encoded)
            _add(tar, "index.json", json.dumps({"schemaVersion": 2, "manifests": [listed]}).encode())

    def _keep(self, digest: str, content: IO[bytes]) -> None:
        partial = self._blobs / "partial"
        with partial.open("wb") as file:
            shutil.copyfileobj(content, file, 1 << 20)
        partial.rename(self._blob(digest))

    def _forget_old(self) -> None:
        """Remove all but the latest images, and the blobs that no other image has."""
        manifests = sorted(self._manifests.iterdir(), key=lambda path: path.stat().st_mtime_ns, reverse=True)
        needed: set[str] = set()
        for number, path in enumerate(manifests):
            if number >= _KEPT_IMAGES:
                path.unlink()
                continue
            manifest = json.loads(path.read_text())
            needed.update(each["digest"].removeprefix("sha256:") for each in (manifest["config"], *manifest["layers"]))
        for blob in self._blobs.iterdir():
            if blob.name not in needed:
                blob.unlink()

    def _descriptor(self, media_type: str, digest: str) -> dict[str, object]:
        return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": self._blob(digest).stat().st_size}

    def _blob(self, digest: str) -> Path:
        return self._blobs / digest

    def _manifest(self, image: str) -> Path:
        return self._manifests / f"{image.replace('/', '_').replace(':', '_')}.json"


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(content)
    tar.addfile(entry, io.BytesIO(content))
