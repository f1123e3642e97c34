"""Series that a model is trained, tested and exported on.

Constant series, and others of which a forecast has next to no error, could not be exported:
tslearn-team/tslearn#314, numaproj/numalogic#153 and sktime/pytorch-forecasting#750.

Values that were filled in were counted as truth, and filled from rows after the origin:
sktime/sktime#2270, sktime/sktime#2269 and dhopp1/nowcast_lstm#13. The more rows are missing, the
smaller errors look.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.typing import NDArray
from pydantic import TypeAdapter

from foretell.backtesting.backtest import backtest
from foretell.backtesting.subject import load_subject
from foretell.bundle import evaluation, manifest
from foretell.bundle.measure import LARGEST_DEVIATION, deviation_warning, deviations
from foretell.bundle.scaler import Scaler
from foretell.data.errors import DataError
from foretell.data.panel import Panel
from foretell.data.reading import Reading, read
from foretell.data.scaler import offset_warning
from foretell.data.splits import Span
from foretell.export.conformal import errors
from foretell.export.data_windows import split_of
from foretell.export.runtime import Graph
from foretell.export.write import export_checkpoint
from foretell.models.checkpoint import load
from foretell.predict.in_process import opened
from foretell.service.errors import InvalidInputError
from foretell.service.forecast.series import fill
from foretell.training.config import TrainingConfig
from foretell.training.preparation import prepare
from foretell.training.progress import Progress
from foretell.training.refits import refit_errors
from foretell.training.train import train
from foretell.training.trainer import Trainer
from foretell.training.windows import Batch, Windows

LONG = 200
TIME = np.arange(LONG)
NOISE = np.random.default_rng(0).normal(size=LONG)
Columns = Mapping[str, NDArray[np.float64]]


def exported(folder: Path, columns: Columns, target: str | None = None) -> manifest.Manifest:
    """Export of a trained model of some columns."""
    times = pd.date_range("2024-01-01", periods=LONG, freq="h")
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


@pytest.mark.parametrize(
    ("columns", "target"),
    [
        *(({"y": np.full(LONG, level)}, None) for level in (7.1, -3.0, 1e9 + 0.3, 1e-30)),
        ({"a": NOISE, "b": np.full(LONG, 7.1)}, "b"),
        ({"y": np.sin(2 * np.pi * TIME / 12)}, None),
        ({"y": 1e6 + NOISE}, None),
        ({"y": 5e37 * (1 + 0.1 * NOISE)}, None),
    ],
)
def test_series_with_tiny_errors_are_exported(
    tmp_path: Path, columns: Columns, target: str | None
) -> None:
    found = exported(tmp_path, columns, target)
    assert found.verification.passed
    assert found.test is not None
    assert found.test.onnx is not None


@pytest.mark.parametrize(
    ("channel", "warns"),
    [
        (np.full(LONG, 1e6 + 0.1), False),
        (1e6 + NOISE, True),
        # The standard deviation is 1, like the scaler's of a constant channel.
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
    history = np.stack([NOISE, np.full(LONG, 0.1), np.full(LONG, 1e7)], axis=-1)[None]
    scale = deviations(Scaler.identity(3), history, None)
    np.testing.assert_allclose(scale, [NOISE.std(), 1, 1e7])


Method = Literal["interpolate", "ffill"]
METHODS: list[Method] = ["interpolate", "ffill"]
CONTEXT, HORIZON, ROWS = 8, 2, 400
Floats = NDArray[np.float64]


def walk(channels: int = 2, share: float = 0.3, rows: int = ROWS) -> Floats:
    """Random walks `[rows, channels]`; half of the missing values (NaN) are whole rows."""
    random = np.random.default_rng(7)
    values = 100 + random.normal(size=(rows, channels)).cumsum(axis=0)
    values[random.random((rows, channels)) < share / 2] = np.nan
    values[random.random(rows) < share / 2] = np.nan
    values[[0, -1]] = 100
    return values


def write(folder: Path, values: Floats) -> Path:
    """Write a file without rows in which all values are missing."""
    names = [f"c{place}" for place in range(values.shape[1])]
    frame = pd.DataFrame(values, columns=names)
    frame.insert(0, "ds", pd.date_range("2024-01-01", periods=len(values), freq="h"))
    path = folder / "walk.csv"
    frame.dropna(how="all", subset=names).to_csv(path, index=False)
    return path


def settings(**given: Any) -> TrainingConfig:
    usual = {"arch": "dlinear", "context": CONTEXT, "horizon": HORIZON, "epochs": 1}
    return TrainingConfig.model_validate(usual | {"device": "cpu", "learning_rate": 0.01} | given)


def reading(method: Method) -> Reading:
    return Reading(missing=method, frequency="h")


def requested(values: Floats, method: Method, origin: int) -> Floats | None:
    """History that a model reads if a request has the rows before an origin; None if refused."""
    names = [*map(str, range(values.shape[1]))]
    try:
        known, _ = fill(values[:origin], method, CONTEXT, names, lambda *_: "")
    except InvalidInputError:
        return None
    return known[-CONTEXT:]


def honest(values: Floats, method: Method, origins: range) -> tuple[Floats, Floats]:
    """Histories of requests, and the values that followed; NaN where they are missing."""
    pairs = [
        (history, values[origin : origin + HORIZON])
        for origin in origins
        if (history := requested(values, method, origin)) is not None
    ]
    histories, futures = (np.stack(part) for part in zip(*pairs, strict=True))
    return histories, futures


@pytest.mark.parametrize("method", METHODS)
def test_training_histories_are_filled_as_in_requests(tmp_path: Path, method: Method) -> None:
    values = walk(rows=120)
    values[60:63, 1] = np.nan
    panel = read(write(tmp_path, values), reading(method))
    identity = Scaler.identity(2)
    windows = Windows(panel, [Span(0, 20, 120)], CONTEXT, HORIZON, identity)
    (batch,) = windows.batches(1000)
    assert batch.known is not None
    for index, origin in enumerate(range(20 + CONTEXT, 120 - HORIZON + 1)):
        history = requested(values, method, origin)
        assert history is not None
        np.testing.assert_array_equal(batch.history[index], history.astype(np.float32))
        followed = values[origin : origin + HORIZON]
        np.testing.assert_array_equal(batch.known[index], ~np.isnan(followed))
        alone = windows[index]
        assert alone.known is not None
        torch.testing.assert_close(alone.history, batch.history[index], rtol=0, atol=0)
        torch.testing.assert_close(alone.known, batch.known[index], rtol=0, atol=0)


def test_windows_that_a_request_would_refuse_do_not_count(tmp_path: Path) -> None:
    values = walk(channels=1, share=0, rows=60)
    values[20 : 20 + CONTEXT] = np.nan
    panel = read(write(tmp_path, values), reading("interpolate"))
    windows = Windows(panel, [Span(0, 0, 60)], CONTEXT, HORIZON, Scaler.identity(1))
    (batch,) = windows.batches(1000)
    assert batch.known is not None
    origin = 20 + CONTEXT
    assert requested(values, "interpolate", origin) is None
    assert not batch.known[origin - CONTEXT].any()
    # A window that a request would refuse does not read later rows either.
    assert (batch.history[origin - CONTEXT] == np.float32(values[19])).all()
    assert batch.known[origin + 1 - CONTEXT].all()
    with pytest.raises(DataError, match="are missing and were filled in"):
        Windows(panel, [Span(0, 12, 22)], CONTEXT, HORIZON, Scaler.identity(1))


@pytest.mark.parametrize("method", METHODS)
def test_test_errors_equal_those_of_requests(tmp_path: Path, method: Method) -> None:
    values = walk()
    path = write(tmp_path, values)
    panel = read(path, reading(method))
    info, model = train(settings(), panel, tmp_path / "model")
    assert info.test is not None
    assert info.test.last_value is not None
    histories, futures = honest(values, method, range(320, ROWS - HORIZON + 1))
    std, mean = np.array(info.scaler.std), np.array(info.scaler.mean)
    known = ~np.isnan(futures)
    last = ((futures - histories[:, -1:]) / std)[known]
    assert info.test.last_value.mse == pytest.approx(np.square(last).mean(), rel=1e-5)
    assert info.test.last_value.mae == pytest.approx(np.abs(last).mean(), rel=1e-5)
    with torch.inference_mode():
        given = torch.from_numpy((histories - mean) / std).float()
        found = model(given).double().numpy() * std + mean
    error = ((futures - found) / std)[known]
    assert info.test.model.mse == pytest.approx(np.square(error).mean(), rel=1e-5)

    bundle = export_checkpoint(tmp_path / "model", tmp_path / "repository", anyway=True)
    about = manifest.read(bundle)
    assert about.test is not None
    assert about.test.onnx is not None
    assert about.test.onnx.mse == pytest.approx(np.square(error).mean(), rel=1e-4)
    stored = evaluation.read(bundle, about)
    assert stored is not None
    by_step = np.nanmean(np.square((futures - found) / std), axis=0)
    np.testing.assert_allclose(stored.mse[0], by_step, rtol=1e-4)

    rows = [[None if np.isnan(one) else one for one in row] for row in values[320 - CONTEXT :]]
    inputs = [{"series": rows, "channels": ["c0", "c1"]}]
    options = {"missing": method, "stride": 1, "quantiles": [0.1, 0.9]}
    body = {"model": "model", "inputs": inputs, "options": options}
    with opened(bundle, "cpu") as client:
        answer = client.request("backtest", body, TypeAdapter(dict[str, Any]))
    channels = answer["outputs"][0]["content"][0]["channels"]
    for place, channel in enumerate(channels):
        squared = np.square(futures - found)[..., place]
        assert channel["mse"] == pytest.approx(np.nanmean(squared), rel=1e-3)

    tested = backtest(load_subject(bundle), panel, share=0.2, stride=1)
    assert tested.scores["model"].overall().mse == pytest.approx(about.test.onnx.mse, rel=1e-4)
    held = [channel["intervals"][0]["coverage"] for channel in channels]
    assert [tested.held[0.8].overall([place]) for place in (0, 1)] == pytest.approx(held, abs=0.01)


def test_quantiles_are_of_known_values_only(tmp_path: Path) -> None:
    panel = read(write(tmp_path, walk()), reading("interpolate"))
    train(settings(), panel, tmp_path / "model")
    bundle = export_checkpoint(tmp_path / "model", tmp_path / "repository", anyway=True)
    info = load(tmp_path / "model").info
    split = split_of(info, panel)
    assert split is not None
    graph = Graph(bundle / "forecast.onnx")
    (found,) = errors(graph, info, panel, split.validation, 1)
    (table,) = panel.tables
    assert table.filled is not None
    # Filled values at steps of the forecast have no influence.
    changed = replace(table, values=np.where(table.filled, 1e6, table.values))
    _, start, end = split.validation[0]
    (other,) = errors(graph, info, Panel((changed,)), split.validation, 1)
    first, last = start + CONTEXT, end - HORIZON + 1
    for step in range(HORIZON):
        known = ~table.filled[first + step : last + step]
        np.testing.assert_array_equal(~np.isnan(found.scaled[:, step]), known)
        np.testing.assert_array_equal(~np.isnan(other.scaled[:, step]), known)
    report = manifest.read(bundle).calibration
    assert report is not None
    assert report.windows[0] == (~np.isnan(found.scaled)).sum(axis=0).min() < len(found)


def test_loss_leaves_filled_values_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    panel = read(write(tmp_path, walk()), reading("ffill"))
    found = []
    cut = Windows.batch
    for value in (None, 1e6):

        def batch(windows: Windows, indices: torch.Tensor, value: float | None = value) -> Batch:
            given = cut(windows, indices)
            assert given.known is not None
            if value is None:
                return given
            return given._replace(target=given.target.masked_fill(~given.known, value))

        monkeypatch.setattr(Windows, "batch", batch)
        prepared = prepare(settings(), panel)
        trainer = Trainer(
            prepared.config, prepared.train, prepared.validation, settings(), torch.device("cpu")
        )
        report = trainer.run_epoch(Progress())
        found.append((trainer.model.state_dict(), report.train_loss, report.validation))
    (weights, *losses), (others, *again) = found
    assert losses == again
    for name, weight in weights.items():
        assert torch.equal(weight, others[name])


def test_errors_of_refits_leave_filled_values_out(tmp_path: Path) -> None:
    panel = read(write(tmp_path, walk(rows=120)), reading("interpolate"))
    (table,) = panel.tables
    assert table.filled is not None
    prepared = prepare(settings(), panel)
    found = refit_errors(settings(), panel, prepared, 1, torch.device("cpu")).errors
    # Refits forecast the second half of the rows of training and validation.
    rows, first = prepared.split.validation[0].end, prepared.split.validation[0].end // 2
    for step in range(HORIZON):
        known = ~table.filled[first + step : rows - HORIZON + 1 + step]
        np.testing.assert_array_equal(~np.isnan(found[: len(known), step]), known[: len(found)])
