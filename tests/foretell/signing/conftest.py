from __future__ import annotations

from pathlib import Path

import pytest

from foretell.signing.sign import sign
from tests.foretell.signing.keys import Pair, write_pair
from tests.support.bundles import Spec, write_bundle


@pytest.fixture
def pair(tmp_path: Path) -> Pair:
    """The key pair whose signatures are accepted."""
    return write_pair(tmp_path, "own")


@pytest.fixture
def other(tmp_path: Path) -> Pair:
    """Another key pair."""
    return write_pair(tmp_path, "other")


@pytest.fixture
def bundle(tmp_path: Path, pair: Pair) -> Path:
    """A signed bundle in a repository."""
    bundle = write_bundle(tmp_path / "models", Spec(name="repeat"))
    sign(bundle, pair.private)
    return bundle
