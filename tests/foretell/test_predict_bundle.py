"""`foretell predict --bundle`: what a server would have forecast, without one."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import Result

from foretell.predict.in_process import opened
from tests.service.client import Client as Served
from tests.support import command
from tests.support.bundles import Spec, write_bundle

SPEC = Spec(name="house", channels=("load", "wind"), calibrated=2)
HOURS = pd.date_range("2024-01-01", periods=30, freq="h")


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    write_bundle(folder, SPEC)
    write_bundle(folder, Spec(name="house", version="2", channels=("load", "wind"), calibrated=2))
    return folder


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Thirty hours of two channels."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"date": HOURS, "load": rng.normal(size=30), "wind": rng.normal(size=30)})
    table.to_csv(tmp_path / "data.csv", index=False)
    return tmp_path / "data.csv"


def predict(bundle: Path, *words: object) -> Result:
    return command.done("predict", f"--bundle={bundle}", *words)


def refused(bundle: Path, *words: object) -> str:
    return command.refused("predict", f"--bundle={bundle}", *words)


def test_bundle_forecasts_like_a_server(models: Path, data: Path, tmp_path: Path) -> None:
    output = tmp_path / "forecast.csv"
    words = ["--horizon=6", "--quantiles=0.1,0.9", "--holdout=2", f"--out={output}"]
    result = predict(models / "house", data, *words)
    rolled = "the steps from 4 on, counted from 0, are forecast from forecasts"
    assert result.stderr == f"warning: {rolled}\n"
    assert "house@2 on data.csv: 6 steps, from 5 on from forecasts" in result.stdout
    assert f"written to {output}" in result.stdout
    frame = pd.read_csv(data)
    body = {
        "model": "house",
        "inputs": [{"series": frame[["load", "wind"]].iloc[:-2].to_numpy().tolist()}],
        "options": {"horizon": 6, "quantiles": [0.1, 0.9]},
    }
    with Served(models) as served:
        expected = served.first(body)
    found = pd.read_csv(output)
    assert found.ds.tolist()[0] == "2024-01-02T04:00:00"
    for place, name in enumerate(SPEC.channels):
        columns = {name: expected["mean_forecast"]}
        for level, values in expected["quantiles"].items():
            columns[f"{name}_q{level}"] = values
        for column, values in columns.items():
            assert found[column].tolist() == [row[place] for row in values]
    assert found.load_actual.dropna().tolist() == pytest.approx(frame.load[-2:].tolist())


def test_version_folder_may_have_any_path(models: Path, data: Path, tmp_path: Path) -> None:
    shutil.copytree(models / "house" / "1", tmp_path / "elsewhere")
    output = predict(tmp_path / "elsewhere", data, "--out=-").stdout
    assert output.splitlines()[0] == "ds,load,wind"
    assert len(output.splitlines()) == 5


def test_gaps_are_filled_on_request(models: Path, data: Path) -> None:
    frame = pd.read_csv(data)
    frame.loc[27, "load"] = np.nan
    frame.to_csv(data, index=False)
    assert "line 29, column 'load'" in refused(models / "house", data)
    predict(models / "house", data, "--missing=ffill")


def test_error_of_a_damaged_bundle_has_its_path(models: Path, data: Path, tmp_path: Path) -> None:
    shutil.copytree(models / "house" / "1", tmp_path / "house" / "1")
    graph = tmp_path / "house" / "1" / "forecast.onnx"
    graph.write_bytes(graph.read_bytes() + b" ")
    message = refused(tmp_path / "house", data, f"--out={tmp_path / 'out.csv'}")
    assert f"{graph}: sha256 differs" in message
    assert not (tmp_path / "out.csv").exists()


def test_bad_bundles_and_requests_are_refused(models: Path, data: Path, tmp_path: Path) -> None:
    write_bundle(tmp_path, Spec(name="big", changes={"devices": ("cuda",)}))
    for folder, option, message in (
        (tmp_path, "--device=cpu", "manifest.json: missing"),
        (tmp_path / "big", "--device=cpu", "is for cuda alone"),
        (models / "house", "--horizon=999", "options.horizon: expected at most 16 steps"),
    ):
        assert message in refused(folder, data, option)
    result = command.run("predict", data, f"--bundle={models / 'house'}", "--url=localhost:8000")
    assert (result.exit_code, "give --url or --bundle" in result.stderr) == (2, True)


def test_settings_of_a_server_are_not_read(models: Path, data: Path) -> None:
    variables = {"API_KEYS": "secret", "KEY": "no key\n", "PORT": "wrong"}
    environment = {f"FORETELL_{name}": value for name, value in variables.items()}
    command.done("predict", f"--bundle={models / 'house'}", data, **environment)


def test_client_of_a_bundle_works_within_an_event_loop(models: Path) -> None:
    async def ask() -> pd.DataFrame:
        frame = pd.DataFrame({"load": range(30), "wind": range(30)}, index=HOURS, dtype=float)
        with opened(models / "house", "cpu") as client:
            return client.forecast(frame / 30)

    assert asyncio.run(ask()).load.tolist() == pytest.approx([29 / 30] * 4)
