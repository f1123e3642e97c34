import hashlib
from pathlib import Path

import pytest

from foretell.bundle import layout
from foretell.bundle.checksums import check, sha256
from foretell.bundle.errors import BundleError


def test_sha256(tmp_path: Path) -> None:
    content = bytes(range(256)) * 5000
    (tmp_path / "file").write_bytes(content)
    assert sha256(tmp_path / "file") == hashlib.sha256(content).hexdigest()
    (tmp_path / "empty").touch()
    assert sha256(tmp_path / "empty").startswith("e3b0c44298fc1c14")


def test_check(tmp_path: Path) -> None:
    for name in (*layout.FILES, "b"):
        (tmp_path / name).write_text(name)
    sums = {path.name: sha256(path) for path in tmp_path.iterdir()}
    check(tmp_path, sums)
    (tmp_path / "b").write_text("B")
    with pytest.raises(BundleError, match="/b: sha256 differs"):
        check(tmp_path, sums)
    (tmp_path / "b").unlink()
    with pytest.raises(BundleError, match="/b: missing"):
        check(tmp_path, sums)
    (tmp_path / "b").mkdir()
    with pytest.raises(BundleError, match="/b: missing"):
        check(tmp_path, sums)
    for name in layout.FILES:
        with pytest.raises(BundleError, match=f"the manifest has no checksum of {name}"):
            check(tmp_path, {other: sums[other] for other in sums if other != name})
