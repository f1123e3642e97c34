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


@pytest.mark.parametrize("part", [0.2, 0.4, 0.6, 0.8])
def test_damaged_bytes_are_no_crash(file: Path, part: float) -> None:
    """numpy, zipfile and zlib raise errors of many kinds at them."""
    data = bytearray(file.read_bytes())
    for at in range(int(part * len(data)), len(data), len(data) // 5):
        data[at] ^= 0xFF
    file.write_bytes(data)
    with pytest.raises(BundleError, match=r"some\.npz: cannot be read: "):
        archives.read(file)


def test_a_single_array_is_no_archive(file: Path) -> None:
    with file.open("wb") as raw:
        np.save(raw, np.zeros(3))
    with pytest.raises(BundleError, match="cannot be read"):
        archives.read(file)
