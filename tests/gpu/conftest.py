from __future__ import annotations

import pytest

from tests.support.stand_in.machine import Machine, UnavailableError, build
from tests.support.trained import bundles, checkpoints, data, every_mechanism, in_turn

__all__ = ["bundles", "checkpoints", "data", "every_mechanism", "in_turn"]


@pytest.fixture(scope="session")
def stand_in() -> Machine:
    """A machine with onnxruntime's real CUDA provider, and GPUs that compute nothing."""
    try:
        return build()
    except UnavailableError as reason:
        pytest.skip(str(reason))
