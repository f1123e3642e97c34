"""Trained checkpoints of published code, from their file to answers of a running server.

Raw rows go in over HTTP; what comes back is, standardised, what the published code predicted.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from click.testing import CliRunner
from numpy.typing import NDArray

from foretell.commands.import_ import command
from foretell.data.reading import read
from foretell.data.table import Table
from foretell.timeaxis.timestamps import render
from tests import golden
from tests.support.process import Server

FLAGS = {
    "autoformer_ETTh1_96_48": ("--set=moving_avg=25",),
    "patchtst_ETTh1_96_96": (),
    "transformer_ETTh1_96_24": (),
}
CONTEXT = 96
TRAIN_ROWS = 8640
FIRST_TEST_ROW = 11520
LAST_TEST_ROW = 14400
INPUTS = 128

Floats = NDArray[np.float64]


def described(name: str) -> dict[str, Any]:
    return json.loads((golden.shared(f"trained/{name}") / "meta.json").read_text())


@cache
def etth1() -> Table:
    return read(golden.shared("data/ETT-small/ETTh1.csv")).tables[0]


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All three models, imported and exported."""
    folder = tmp_path_factory.mktemp("repository")
    for name, flags in FLAGS.items():
        options = {
            "--from": "tslib",
            "--arch": name.split("_")[0],
            "--data": str(golden.shared("data/ETT-small/ETTh1.csv")),
            "--setting": described(name)["setting"],
            "--set": "activation=gelu",
            "--repository": str(folder),
            "--name": name,
        }
        file = golden.shared(f"trained/{name}") / "checkpoint.pth"
        words = [word for option in options.items() for word in option]
        result = CliRunner().invoke(command, [str(file), *words, *flags])
        assert result.exit_code == 0, result.output
    return folder


@pytest.fixture(scope="module")
def server(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    log = tmp_path_factory.mktemp("server") / "log"
    with (
        Server(repository, log, log_format="text") as served,
        httpx.Client(base_url=served.url, timeout=60) as client,
    ):
        yield client


def ask(
    client: httpx.Client, name: str, windows: NDArray[np.int64], **options: Any
) -> list[dict[str, Any]]:
    """Answers for test windows, sent as raw rows."""
    table = etth1()
    starts = FIRST_TEST_ROW - CONTEXT + windows
    inputs = [
        {
            "series": table.values[start : start + CONTEXT].tolist(),
            "start_timestamp": render(table.timestamps[start : start + 1], None)[0],
        }
        for start in starts
    ]
    body = {"model": name, "inputs": inputs, "options": options}
    answer = client.post("/forecast", json=body)
    assert answer.status_code == 200, answer.text
    return [output["content"][0] for output in answer.json()["outputs"]]


def forecast(client: httpx.Client, name: str, windows: NDArray[np.int64]) -> Floats:
    """Forecasts `[batch, horizon, channels]` of test windows."""
    return np.array([content["mean_forecast"] for content in ask(client, name, windows)])


def standardised(values: Floats) -> Floats:
    train = etth1().values[:TRAIN_ROWS]
    return (values - train.mean(axis=0)) / train.std(axis=0)


@pytest.mark.parametrize("name", FLAGS)
def test_stored_predictions_over_http(server: httpx.Client, name: str) -> None:
    with np.load(golden.shared(f"trained/{name}") / "pred.npz") as stored:
        windows, expected = stored["window_index"], stored["pred"]
    assert len(windows) == 128
    found = standardised(forecast(server, name, windows))
    np.testing.assert_allclose(found, expected, rtol=0, atol=2e-5)


@pytest.mark.parametrize("name", FLAGS)
def test_accuracy_on_the_whole_split_over_http(server: httpx.Client, name: str) -> None:
    expected = described(name)
    horizon = int(name.split("_")[-1])
    windows = np.arange(LAST_TEST_ROW - FIRST_TEST_ROW - horizon + 1)
    assert len(windows) == expected["n_test_windows"]
    rows = standardised(etth1().values)
    squared = absolute = 0.0
    for start in range(0, len(windows), INPUTS):
        chunk = windows[start : start + INPUTS]
        found = standardised(forecast(server, name, chunk))
        target = rows[FIRST_TEST_ROW + chunk[:, None] + np.arange(horizon)]
        squared += float(np.square(found - target).mean(axis=(1, 2)).sum())
        absolute += float(np.abs(found - target).mean(axis=(1, 2)).sum())
    assert round(squared / len(windows), 5) == round(expected["mse_scaled"], 5)
    assert round(absolute / len(windows), 5) == round(expected["mae_scaled"], 5)


@pytest.mark.parametrize("name", FLAGS)
def test_intervals_over_http_have_their_coverage(server: httpx.Client, name: str) -> None:
    horizon = int(name.split("_")[-1])
    windows = np.arange(0, LAST_TEST_ROW - FIRST_TEST_ROW - horizon + 1, 8)
    levels = [0.025, 0.1, 0.9, 0.975]
    held = {0.8: 0.0, 0.95: 0.0}
    for start in range(0, len(windows), INPUTS):
        chunk = windows[start : start + INPUTS]
        target = etth1().values[FIRST_TEST_ROW + chunk[:, None] + np.arange(horizon)]
        answers = ask(server, name, chunk, quantiles=levels)
        quantiles = [[content["quantiles"][str(level)] for level in levels] for content in answers]
        low, inner_low, inner_high, high = np.moveaxis(np.array(quantiles), 1, 0)
        held[0.8] += ((inner_low <= target) & (target <= inner_high)).mean(axis=(1, 2)).sum()
        held[0.95] += ((low <= target) & (target <= high)).mean(axis=(1, 2)).sum()
    assert 0.76 <= held[0.8] / len(windows) <= 0.84
    assert 0.92 <= held[0.95] / len(windows) <= 0.975
    for part in server.get(f"/models/{name}").json()["calibration"]["coverage"][:2]:
        assert held[part["level"]] / len(windows) == pytest.approx(part["coverage"], abs=0.01)


def test_intervals_of_a_longer_horizon_are_wider(server: httpx.Client) -> None:
    name = "patchtst_ETTh1_96_96"
    answers = ask(server, name, np.arange(0, 2400, 200), quantiles=[0.1, 0.9], horizon=384)
    low, high = (
        np.array([content["quantiles"][level] for content in answers]) for level in ("0.1", "0.9")
    )
    widths = (high - low).reshape(len(answers), 4, 96, -1).mean(axis=(0, 2, 3))
    assert np.all(np.diff(widths) > 0)
