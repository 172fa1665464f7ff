"""Images on their way from a builder to a node: nothing lost, nothing sent twice, old ones forgotten."""

import hashlib
import io
import json
import tarfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from e2e.cluster.imagestore import ImageStore
from e2e.cluster.interface import ClusterError
from e2e.cluster.local import pause


def _archive(layers: list[bytes]) -> io.BytesIO:
    """Return an archive in Docker's format."""
    digests = [hashlib.sha256(layer).hexdigest() for layer in layers]
    configuration = json.dumps({"rootfs": {"diff_ids": [f"sha256:{digest}" for digest in digests]}}).encode()
    name = f"{hashlib.sha256(configuration).hexdigest()}.json"
    manifest = [{"Config": name, "Layers": [f"{digest}.tar" for digest in digests]}]
    files = {f"{digest}.tar": layer for digest, layer in zip(digests, layers, strict=True)}
    return _tar(files | {name: configuration, "manifest.json": json.dumps(manifest).encode()})


def _tar(files: dict[str, bytes]) -> io.BytesIO:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    buffer.seek(0)
    return buffer


def _export(store: ImageStore, image: str, present: set[str]) -> dict[str, bytes]:
    buffer = io.BytesIO()
    store.export(image, buffer, present=present)
    buffer.seek(0)
    with tarfile.open(fileobj=buffer) as tar:
        return {entry.name: (tar.extractfile(entry) or io.BytesIO()).read() for entry in tar}


@settings(max_examples=25)
@given(layers=st.lists(st.binary(min_size=1, max_size=64), min_size=1, max_size=5, unique=True), data=st.data())
def test_a_node_ends_up_with_every_blob(
    tmp_path_factory: pytest.TempPathFactory, layers: list[bytes], data: st.DataObject
) -> None:
    store = ImageStore(tmp_path_factory.mktemp("store"))
    store.add("localhost/x:1", _archive(layers))
    has = data.draw(st.sets(st.sampled_from(layers)))
    present = {f"sha256:{hashlib.sha256(layer).hexdigest()}" for layer in has}
    sent = _export(store, "localhost/x:1", present)

    [listed] = json.loads(sent["index.json"])["manifests"]
    assert listed["annotations"]["io.containerd.image.name"] == "localhost/x:1"
    blobs = {name.rpartition("/")[2]: content for name, content in sent.items() if name.startswith("blobs/")}
    assert all(hashlib.sha256(content).hexdigest() == digest for digest, content in blobs.items())
    manifest = json.loads(blobs[listed["digest"].removeprefix("sha256:")])
    for descriptor, layer in zip(manifest["layers"], layers, strict=True):
        digest = descriptor["digest"].removeprefix("sha256:")
        assert descriptor["size"] == len(layer)
        assert (digest in blobs) == (layer not in has)
    assert manifest["config"]["digest"].removeprefix("sha256:") in blobs


def test_keeps_a_shared_layer_once(tmp_path: Path) -> None:
    store = ImageStore(tmp_path)
    store.add("localhost/x:1", _archive([b"base", b"one"]))
    store.add("localhost/x:2", _archive([b"base", b"two"]))
    assert len(list((tmp_path / "blobs").iterdir())) == 3 + 2  # three layers, two configurations


def test_forgets_old_images_and_what_only_they_had(tmp_path: Path) -> None:
    store = ImageStore(tmp_path)
    for number in range(40):
        store.add(f"localhost/x:{number}", _archive([b"base", f"code {number}".encode()]))
    assert not store.has("localhost/x:0")
    assert store.has("localhost/x:39")
    assert len(list((tmp_path / "blobs").iterdir())) == 1 + 30 + 30


def test_refuses_an_archive_that_lacks_a_layer(tmp_path: Path) -> None:
    configuration = json.dumps({"rootfs": {"diff_ids": ["sha256:abc"]}}).encode()
    manifest = json.dumps([{"Config": "c.json"}]).encode()
    with pytest.raises(ClusterError, match=r"lacks the layers \['abc'\]"):
        ImageStore(tmp_path).add("localhost/x:1", _tar({"c.json": configuration, "manifest.json": manifest}))
    assert not ImageStore(tmp_path).has("localhost/x:1")


def test_says_how_to_get_an_image_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match="make image"):
        ImageStore(tmp_path).export("localhost/x:1", io.BytesIO(), present=set())


def test_the_pause_image_is_one_program(tmp_path: Path) -> None:
    built = pause.build(b"program", machine="x86_64")
    with tarfile.open(fileobj=io.BytesIO(built)) as tar:
        manifest = json.loads((tar.extractfile("manifest.json") or io.BytesIO()).read())[0]
        layer = (tar.extractfile(manifest["Layers"][0]) or io.BytesIO()).read()
        configuration = json.loads((tar.extractfile(manifest["Config"]) or io.BytesIO()).read())
    assert manifest["RepoTags"] == ["localhost/swingpool-pause:1"]
    assert configuration["architecture"] == "amd64"
    assert configuration["rootfs"]["diff_ids"] == [f"sha256:{hashlib.sha256(layer).hexdigest()}"]
    with tarfile.open(fileobj=io.BytesIO(layer)) as tar:
        [entry] = tar.getmembers()
    assert (entry.name, entry.mode) == ("pause", 0o755)
