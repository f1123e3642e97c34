from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from foretell.bundle import archives
from foretell.bundle.archives import Array
from foretell.bundle.errors import BundleError


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "some.npz"
    np.savez_compressed(path, rows=np.arange(300.0), names=np.array(["a", "b"]))
    return path


def test_all_arrays_are_read(file: Path) -> None:
    found = archives.load(file, "names")
    np.testing.assert_array_equal(found["rows"], np.arange(300.0))
    assert found["names"].tolist() == ["a", "b"]


def test_what_it_lacks_is_named(file: Path) -> None:
    with pytest.raises(BundleError, match=r"some\.npz: cannot be read: it lacks columns"):
        archives.load(file, "rows", "columns", "more")


@pytest.mark.parametrize("part", [0.2, 0.4, 0.6, 0.8])
def test_damaged_bytes_are_no_crash(file: Path, part: float) -> None:
    """numpy, zipfile and zlib raise errors of many kinds at them."""
    data = bytearray(file.read_bytes())
    for at in range(int(part * len(data)), len(data), len(data) // 5):
        data[at] ^= 0xFF
    file.write_bytes(data)
    with pytest.raises(BundleError, match=r"some\.npz: cannot be read: "):
        archives.load(file)


def test_a_single_array_is_no_archive(file: Path) -> None:
    with file.open("wb") as raw:
        np.save(raw, np.zeros(3))
    with pytest.raises(BundleError, match="cannot be read"):
        archives.load(file)


SPEC = {
    "names": Array("text", ("columns",)),
    "rows": Array("float64", ("rows", "columns")),
    "weights": Array("float32", ("rows",), gaps=True),
    "title": Array("text"),
}
ARRAYS: dict[str, Any] = {
    "names": np.array(["a", "b"]),
    "rows": np.asfortranarray(np.arange(6.0).reshape(3, 2)),
    "weights": np.array([1, np.nan, 3], np.float32),
    "title": np.array("some"),
}


def test_arrays_of_a_spec(tmp_path: Path) -> None:
    path = tmp_path / "some.npz"
    values = {**ARRAYS, "names": ("a", "b"), "weights": [1, np.nan, 3], "title": "some"}
    archives.write(path, SPEC, SimpleNamespace(**values))
    for content in (None, path.read_bytes()):
        found = archives.read(path, SPEC, {"rows": 3}, content)
        for name, expected in ARRAYS.items():
            np.testing.assert_array_equal(found[name], expected)
            assert found[name].flags.c_contiguous


def test_no_text_is_text(tmp_path: Path) -> None:
    spec = {"names": Array("text", ("columns",))}
    archives.write(tmp_path / "some.npz", spec, SimpleNamespace(names=()))
    assert archives.read(tmp_path / "some.npz", spec, {})["names"].shape == (0,)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"rows": np.zeros((3, 3))},
            r"rows: expected \(3, 2\) in float64, got \(3, 3\) in float64",
        ),
        ({"rows": np.zeros((3, 2), np.float32)}, r"rows: expected .* got \(3, 2\) in float32"),
        ({"rows": np.full((3, 2), np.nan)}, "rows: must be finite"),
        ({"names": np.arange(2)}, "names: expected .* in text, got .* in int64"),
        ({"names": np.array("a")}, r"names: expected \('columns',\) in text, got \(\) in text"),
        ({"names": np.array(["a"])}, r"rows: expected \(3, 1\)"),
        ({"weights": np.ones(2, np.float32)}, r"weights: expected \(3,\)"),
        ({"weights": np.full(3, np.inf, np.float32)}, "weights: must be finite"),
        ({"title": np.array([None])}, "cannot be read"),
    ],
)
def test_other_arrays_are_refused(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    path = tmp_path / "some.npz"
    np.savez(path, **(ARRAYS | changes))
    with pytest.raises(BundleError, match=rf"some\.npz: {message}"):
        archives.read(path, SPEC, {"rows": 3})


@pytest.mark.parametrize("content", [None, b"", b"PK\3\4nothing", b"text"])
def test_no_archive_is_refused(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "some.npz"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(BundleError, match=r"some\.npz: cannot be read"):
        archives.read(path, SPEC, {})
