from dataclasses import replace

import numpy as np
import pytest
import torch

from foretell.bundle.bounds import Bound
from foretell.bundle.scaler import Scaler
from foretell.data.panel import Panel
from foretell.data.splits import Span
from foretell.training.accuracy import (
    against_baselines,
    bounded,
    evaluate,
    last_value,
    seasonal_naive,
)
from foretell.training.windows import Windows
from tests.data.panels import HOUR, table


def windows_of(values: np.ndarray, context: int, horizon: int) -> Windows:
    rows, channels = values.shape
    panel = Panel((replace(table(rows, channels=channels), values=values),))
    return Windows(panel, [Span(0, 0, rows)], context, horizon, Scaler.identity(channels))


@pytest.mark.parametrize("batch_size", [1, 7, 1000])
def test_every_window_has_the_same_weight(batch_size: int) -> None:
    values = np.random.default_rng(0).normal(size=(50, 2))
    windows = windows_of(values, 4, 2)
    accuracy = evaluate(lambda history, *_: torch.zeros(len(history), 2, 2), windows, batch_size)
    targets = np.stack([values[i + 4 : i + 6] for i in range(45)]).astype(np.float32)
    assert accuracy.mse == pytest.approx(np.square(targets, dtype=np.float64).mean(), rel=1e-12)
    assert accuracy.mae == pytest.approx(np.abs(targets).mean(dtype=np.float64), rel=1e-12)


def test_accuracy_of_arrays() -> None:
    windows = windows_of(np.ones((10, 1)), 4, 2)
    accuracy = evaluate(lambda history, *_: np.full((len(history), 2, 1), 4.0), windows, 4)
    assert (accuracy.mse, accuracy.mae) == (9.0, 3.0)


def test_baselines_are_measured() -> None:
    day = np.arange(24.0)
    windows = windows_of(np.tile(day, 10)[:, None], 48, 1)
    result = against_baselines(lambda history, *_: history[:, -1:] + 1, windows, HOUR, 64)
    assert result.windows == len(windows) == 192
    assert result.season == 24
    assert result.seasonal_naive is not None
    assert result.seasonal_naive.mse == 0
    # One step up from the last value is right except at midnight: 24 too much, 8 times in 192.
    assert result.model.mse == pytest.approx(24**2 / 24)
    assert result.last_value.mse == pytest.approx((23 * 1 + 23**2) / 24)
    assert result.onnx is None


def test_no_seasonal_baseline_without_a_season() -> None:
    windows = windows_of(np.ones((40, 1)), 12, 1)
    result = against_baselines(lambda history, *_: history[:, -1:], windows, HOUR, 64)
    assert result.season is None
    assert result.seasonal_naive is None


def test_baselines_repeat_the_last_value_and_the_last_season() -> None:
    history = torch.tensor([[[1.0, 10.0], [2.0, 20.0]]])
    assert last_value(history, 3).tolist() == [[[2, 20]] * 3]
    history = torch.arange(5.0).reshape(1, 5, 1)
    assert seasonal_naive(history, 7, 3).flatten().tolist() == [2, 3, 4, 2, 3, 4, 2]
    assert seasonal_naive(history, 2, 3).flatten().tolist() == [2, 3]


def test_bounds_are_in_the_units_of_the_data() -> None:
    def predict(history: torch.Tensor, *_: object) -> torch.Tensor:
        return history

    names, scaler = ("irradiance", "humidity"), Scaler(mean=(10.0, -1.0), std=(5.0, 2.0))
    bounds = {
        name: Bound.model_validate(text) for name, text in zip(names, ("0:", "-2:0"), strict=True)
    }
    assert bounded(predict, {}, names, scaler) is predict
    within = bounded(predict, bounds, names, scaler)
    found = within(torch.tensor([[[-9.0, -9.0], [9.0, 9.0], [0.1, 0.1]]]), None, None)
    assert isinstance(found, torch.Tensor)
    torch.testing.assert_close(found, torch.tensor([[[-2.0, -0.5], [9.0, 0.5], [0.1, 0.1]]]))
