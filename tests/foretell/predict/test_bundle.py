from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import httpx
import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner, Result

from foretell.client import Client
from foretell.commands.predict import command
from foretell.predict.in_process import opened
from tests.service.client import Client as Served
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


def run(bundle: Path, *words: object) -> Result:
    return CliRunner().invoke(command, [f"--bundle={bundle}", *map(str, words)])


def test_it_prints_and_writes_what_a_server_would_have_forecast(
    models: Path, data: Path, tmp_path: Path
) -> None:
    output = tmp_path / "forecast.csv"
    words = ["--horizon=6", "--quantiles=0.1,0.9", "--holdout=2", f"--out={output}"]
    result = run(models / "house", data, *words)
    assert (result.exit_code, result.stderr) == (0, ROLLED)
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


ROLLED = "warning: the steps from 4 on, counted from 0, are forecast from forecasts\n"


def test_a_version_may_lie_anywhere(models: Path, data: Path, tmp_path: Path) -> None:
    shutil.copytree(models / "house" / "1", tmp_path / "elsewhere")
    result = run(tmp_path / "elsewhere", data, "--out=-")
    assert result.exit_code == 0, result.stderr
    assert result.stdout.splitlines()[0] == "ds,load,wind"
    assert len(result.stdout.splitlines()) == 5


def test_gaps_are_filled_on_request(models: Path, data: Path) -> None:
    frame = pd.read_csv(data)
    frame.loc[27, "load"] = np.nan
    frame.to_csv(data, index=False)
    result = run(models / "house", data)
    assert result.exit_code == 2
    assert "line 29, column 'load'" in result.stderr
    assert run(models / "house", data, "--missing=ffill").exit_code == 0


def test_a_damaged_bundle_is_told_by_its_own_name(models: Path, data: Path, tmp_path: Path) -> None:
    shutil.copytree(models / "house" / "1", tmp_path / "house" / "1")
    graph = tmp_path / "house" / "1" / "forecast.onnx"
    graph.write_bytes(graph.read_bytes() + b" ")
    result = run(tmp_path / "house", data, f"--out={tmp_path / 'out.csv'}")
    assert result.exit_code == 2
    assert f"{graph}: sha256 differs" in result.stderr
    assert not (tmp_path / "out.csv").exists()


def test_no_bundle_and_a_bad_request(models: Path, data: Path, tmp_path: Path) -> None:
    result = run(tmp_path, data)
    assert (result.exit_code, "manifest.json: missing" in result.stderr) == (2, True)
    result = run(models / "house", data, "--horizon=999")
    assert result.exit_code == 2
    assert "options.horizon: expected at most 16 steps" in result.stderr


def test_a_model_that_no_device_here_runs(data: Path, tmp_path: Path) -> None:
    write_bundle(tmp_path, Spec(name="big", changes={"devices": ("cuda",)}))
    result = run(tmp_path / "big", data, "--device=cpu")
    assert result.exit_code == 2
    assert "is for cuda alone" in result.stderr


def test_settings_of_a_server_are_none_of_its(
    models: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORETELL_API_KEYS", "secret")
    monkeypatch.setenv("FORETELL_KEY", "no key\n")
    monkeypatch.setenv("FORETELL_PORT", "wrong")
    assert run(models / "house", data).exit_code == 0


def test_within_an_event_loop(models: Path) -> None:
    async def ask() -> pd.DataFrame:
        frame = pd.DataFrame({"load": range(30), "wind": range(30)}, index=HOURS, dtype=float)
        with opened(models / "house", "cpu") as client:
            return client.forecast(frame / 30)

    assert asyncio.run(ask()).load.tolist() == pytest.approx([29 / 30] * 4)


def test_a_client_takes_another_transport() -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, json=[])

    with Client("nobody", transport=httpx.MockTransport(answer)) as client:
        assert client.models() == []


def test_a_server_or_a_bundle(models: Path, data: Path) -> None:
    result = run(models / "house", data, "--url=localhost:8000")
    assert (result.exit_code, "give --url or --bundle" in result.stderr) == (2, True)
