"""Constant series, and others of which a forecast has next to no error, could not be exported.

Reported of other projects as tslearn-team/tslearn#314, numaproj/numalogic#153 and
sktime/pytorch-forecasting#750.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray

from foretell.bundle import manifest
from foretell.bundle.manifest import Scaler
from foretell.bundle.measure import LARGEST_DEVIATION, deviation_warning, deviations
from foretell.data.reading import read
from foretell.data.scaler import offset_warning
from foretell.export.write import export_checkpoint
from foretell.training.config import TrainingConfig
from foretell.training.train import train

ROWS = 200
TIME = np.arange(ROWS)
NOISE = np.random.default_rng(0).normal(size=ROWS)
Columns = Mapping[str, NDArray[np.float64]]


def exported(folder: Path, columns: Columns, target: str | None = None) -> manifest.Manifest:
    """What a trained model of some columns is exported as."""
    times = pd.date_range("2024-01-01", periods=ROWS, freq="h")
    pd.DataFrame({"ds": times, **columns}).to_csv(folder / "data.csv", index=False)
    settings = TrainingConfig(
        arch="dlinear",
        context=12,
        horizon=2,
        epochs=2,
        device="cpu",
        target=None if target is None else (target,),
    )
    train(settings, read(folder / "data.csv"), folder / "model")
    return manifest.read(export_checkpoint(folder / "model", folder / "repository", anyway=True))


@pytest.mark.parametrize("level", [7.1, -3.0, 1e9 + 0.3, 1e-30])
def test_a_constant_series_is_exported(tmp_path: Path, level: float) -> None:
    found = exported(tmp_path, {"y": np.full(ROWS, level)})
    assert found.verification.passed
    assert found.test is not None
    assert found.test.onnx is not None


@pytest.mark.parametrize(
    ("columns", "target"),
    [
        ({"a": NOISE, "b": np.full(ROWS, 7.1)}, "b"),
        ({"y": np.sin(2 * np.pi * TIME / 12)}, None),
        ({"y": 1e6 + NOISE}, None),
        ({"y": 5e37 * (1 + 0.1 * NOISE)}, None),
    ],
    ids=["flat target", "without noise", "large offset", "end of float32"],
)
def test_so_are_others_of_this_kind(tmp_path: Path, columns: Columns, target: str | None) -> None:
    assert exported(tmp_path, columns, target).verification.passed


@pytest.mark.parametrize(
    ("channel", "warns"),
    [
        (np.full(ROWS, 1e6 + 0.1), False),
        (1e6 + NOISE, True),
        # Its standard deviation is 1, as that of a constant channel is taken to be.
        (1e6 + np.where(TIME % 2, 1, -1), True),
    ],
)
def test_a_constant_channel_loses_no_digits(
    tmp_path: Path, channel: NDArray[np.float64], warns: bool
) -> None:
    found = exported(tmp_path, {"a": NOISE, "b": channel})
    (_, deviation) = found.verification.deviations
    assert deviation < LARGEST_DEVIATION or warns
    assert (offset_warning(found.scaler, ("a", "b")) is not None) == warns
    warning = deviation_warning(found.verification, ("a", "b"), "float32")
    assert warns or warning is None


def test_an_imported_model_of_a_constant_channel_is_compared_with_its_level() -> None:
    history = np.stack([NOISE, np.full(ROWS, 0.1), np.full(ROWS, 1e7)], axis=-1)[None]
    scale = deviations(Scaler.identity(3), history, None)
    np.testing.assert_allclose(scale, [NOISE.std(), 1, 1e7])
