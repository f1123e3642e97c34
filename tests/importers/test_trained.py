"""Really trained checkpoints give the predictions and the accuracy their own code gave."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch

from foretell.data.source import DataSource
from foretell.importers.convert import Imported, import_checkpoint
from foretell.importers.saved import Request
from foretell.timeaxis.frequency import Frequency
from foretell.training.windows import Windows
from tests import golden

NAMES = ("autoformer_ETTh1_96_48", "patchtst_ETTh1_96_96", "transformer_ETTh1_96_24")


@cache
def adopt(name: str) -> Imported:
    folder = golden.shared(f"trained/{name}")
    architecture = name.split("_")[0]
    arguments = {"activation": "gelu"}
    if architecture == "autoformer":
        arguments["moving_avg"] = "25"
    return import_checkpoint(
        Request(
            file=folder / "checkpoint.pth",
            source="tslib",
            architecture=architecture,
            data=golden.shared("data/ETT-small/ETTh1.csv"),
            setting=described(name)["setting"],
            arguments=arguments,
        )
    )


def described(name: str) -> dict[str, Any]:
    return json.loads((golden.shared(f"trained/{name}") / "meta.json").read_text())


@pytest.mark.parametrize("name", NAMES)
def test_accuracy_on_the_whole_split(name: str) -> None:
    test, expected = adopt(name).info.test, described(name)
    assert test is not None
    assert test.windows == expected["n_test_windows"]
    assert round(test.model.mse, 5) == round(expected["mse_scaled"], 5)
    assert round(test.model.mae, 5) == round(expected["mae_scaled"], 5)


@pytest.mark.parametrize("name", NAMES)
def test_stored_predictions(name: str) -> None:
    info, model, _ = adopt(name)
    config = info.config
    source = DataSource.recorded(info.data)
    assert source is not None
    with np.load(golden.shared(f"trained/{name}") / "pred.npz") as stored:
        indices, expected, target = stored["window_index"], stored["pred"], stored["true"]
    assert len(indices) == 128
    panel = source.read(info.channels, Frequency.parse(info.frequency))
    windows = Windows(
        panel,
        source.splits.cut(panel, config.context, config.horizon).test,
        config.context,
        config.horizon,
        info.scaler,
        config.calendar,
    )
    batch = windows.batch(torch.from_numpy(indices.astype(np.int64)))
    np.testing.assert_allclose(batch.target, target, rtol=0, atol=2e-5)
    with torch.inference_mode():
        forecast = model(batch.history, batch.history_calendar, batch.future_calendar)
    np.testing.assert_allclose(forecast, expected, rtol=0, atol=2e-5)
