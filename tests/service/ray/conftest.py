from __future__ import annotations

import warnings
from pathlib import Path

import pytest

from tests.service.bundles import Spec, softmax_stage, write_bundle

with warnings.catch_warnings():
    # What Ray does with pydantic is none of our doing.
    warnings.simplefilter("ignore")
    import ray.serve  # noqa: F401


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Two models; one has attention."""
    write_bundle(tmp_path, Spec(name="one"))
    write_bundle(tmp_path, Spec(name="two", stages=(softmax_stage(),), calibrated=1))
    return tmp_path
