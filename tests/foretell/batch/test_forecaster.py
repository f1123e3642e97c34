from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from foretell.batch.chunks import Chunk
from foretell.batch.forecaster import Forecaster
from foretell.service.forecast.requests import ForecastOptions
from foretell.service.session import CpuSession
from tests.foretell.batch.tables import many, wave


def test_no_window_is_run_alone(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """onnxruntime computes it in another way, so that a forecast would show who came with it."""
    forecaster = Forecaster(models / "repeat" / "1", ForecastOptions(), "cpu")
    sizes: list[int] = []
    run = CpuSession.run

    def watched(self: CpuSession, feeds: dict, worker: int = 0) -> dict:
        sizes.append(len(feeds["history"]))
        return run(self, feeds, worker)

    monkeypatch.setattr(CpuSession, "run", watched)
    for count in range(1, 2 * forecaster.model.max_batch + 2):
        names, bounds = pa.array(range(count)), np.arange(count + 1) * 8
        rows = many(count).drop_columns(["unique_id"])
        [found], rejected = forecaster.forecast(Chunk(rows, names, bounds[:-1], bounds[1:], 0))
        assert not rejected
        last = [np.float32(wave(number, 8)[-1]) for number in range(count)]
        assert found.layers[0, :, 0, 0].tolist() == last
    forecaster.close()
    assert 1 not in sizes
