"""Layers with one file."""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretell.bundle.errors import BundleError
from foretell.storage.errors import StorageError
from foretell.storage.oci.packing import layer_of_file, layer_of_manifest, unpack


def cut(content: bytes, length: int) -> Iterator[bytes]:
    return (content[start : start + length] for start in range(0, len(content), length))


@given(content=st.binary(max_size=1500), length=st.integers(1, 700))
def test_file_is_unpacked_from_pieces_of_any_length(content: bytes, length: int) -> None:
    layer = layer_of_manifest(content, "repeat", "1", ["weights.bin"])
    packed = b"".join(layer)
    assert layer.blob().size == len(packed)
    with tarfile.open(fileobj=BytesIO(packed)) as archive:
        assert [one.name for one in archive] == [
            "models/repeat/1/manifest.json",
            "models/repeat/1/weights.bin",
        ]
    assert b"".join(unpack(cut(packed, length), "manifest.json", "layer")) == content


def test_layers_of_other_content_are_refused() -> None:
    packed = b"".join(layer_of_manifest(b"content" * 100, "repeat", "1", []))
    link = tarfile.TarInfo("models/manifest.json")
    link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
    for content, message in (
        (b"", "not an archive"),
        (packed[:300], "not an archive"),
        (b"\0" * 1024, "not an archive"),
        (packed[:600], "ends before the file does"),
        (packed.replace(b"manifest.json", b"other___.json", 1), "not an archive"),
        (link.tobuf(tarfile.GNU_FORMAT), "does not begin with manifest.json"),
    ):
        with pytest.raises(StorageError, match=message):
            list(unpack(cut(content, 100), "manifest.json", "layer"))
    with pytest.raises(StorageError, match=r"does not begin with weights\.bin"):
        list(unpack(cut(packed, 100), "weights.bin", "layer"))


def test_sizes_over_8_gigabytes_fit_into_the_header(tmp_path: Path) -> None:
    file = tmp_path / "weights.bin"
    with file.open("wb") as sparse:
        sparse.truncate(9 << 30)
    head = next(iter(layer_of_file(tmp_path, "weights.bin", None)))
    found = tarfile.TarInfo.frombuf(head, "utf-8", "strict")
    assert (found.size, found.name) == (9 << 30, "models/.bundle/weights.bin")


def test_file_that_changed_is_not_packed(tmp_path: Path) -> None:
    (tmp_path / "weights.bin").write_bytes(b"changed")
    layer = layer_of_file(tmp_path, "weights.bin", "0" * 64)
    with pytest.raises(BundleError, match=r"weights\.bin: sha256 differs"):
        list(layer)
