import hashlib
from pathlib import Path

import pytest

from foretell.bundle.checksums import check, sha256
from foretell.bundle.errors import BundleError


def test_sha256(tmp_path: Path) -> None:
    content = bytes(range(256)) * 5000
    (tmp_path / "file").write_bytes(content)
    assert sha256(tmp_path / "file") == hashlib.sha256(content).hexdigest()
    (tmp_path / "empty").touch()
    assert sha256(tmp_path / "empty").startswith("e3b0c44298fc1c14")


def test_check(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_text(name)
    sums = {name: sha256(tmp_path / name) for name in ("a", "b")}
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
