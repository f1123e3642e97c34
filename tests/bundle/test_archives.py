from pathlib import Path

import numpy as np
import pytest

from foretell.bundle import archives
from foretell.bundle.errors import BundleError


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "some.npz"
    np.savez_compressed(path, rows=np.arange(300.0), names=np.array(["a", "b"]))
    return path


def test_all_arrays_are_read(file: Path) -> None:
    found = archives.read(file, "names")
    np.testing.assert_array_equal(found["rows"], np.arange(300.0))
    assert found["names"].tolist() == ["a", "b"]


def test_what_it_lacks_is_named(file: Path) -> None:
    with pytest.raises(BundleError, match=r"some\.npz: cannot be read: it lacks columns"):
        archives.read(file, "rows", "columns", "more")


def test_damaged_bytes_are_told_from_all_others(file: Path) -> None:
    """numpy, zipfile and zlib raise errors of many kinds at them."""
    data, refused = file.read_bytes(), 0
    for at in range(0, len(data), 7):
        file.write_bytes(data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :])
        try:
            archives.read(file)
        except BundleError as error:
            assert str(error).startswith(f"{file}: cannot be read: ")
            refused += 1
    assert refused > len(data) / 14


def test_a_single_array_is_no_archive(file: Path) -> None:
    with file.open("wb") as raw:
        np.save(raw, np.zeros(3))
    with pytest.raises(BundleError, match="cannot be read"):
        archives.read(file)
