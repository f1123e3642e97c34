from __future__ import annotations

import pytest

from bench.stand_in.machine import Machine, UnavailableError, build


@pytest.fixture(scope="session")
def stand_in() -> Machine:
    """A machine with onnxruntime's real CUDA provider, and GPUs that compute nothing."""
    try:
        return build()
    except UnavailableError as reason:
        pytest.skip(str(reason))
