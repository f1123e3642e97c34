from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest

from bench.waiting import waiting
from foretell.service.engine.runtime import Runtime
from tests.support.bundles import Spec, write_bundle


def test_a_device_that_waits_computes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    folder = write_bundle(tmp_path, Spec())
    session = waiting(Runtime("cpu").open(folder / "forecast.onnx"), 40.0, 100.0)
    found = session.run({"history": np.full((3, 8, 1), 5.0, np.float32)})
    assert found["forecast"].tolist() == [[[5.0]] * 4] * 3
    assert 300 < slept[-1] <= 340
    session.close()
