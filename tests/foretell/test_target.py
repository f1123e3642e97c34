"""`--target`, from training to answers: all channels are read, and some are forecast."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from pyarrow import ipc

from foretell.backtesting.subject import load_subject
from foretell.bundle.manifest import read
from foretell.data.source import DataSource
from foretell.models.checkpoint import Checkpoint, load
from foretell.service.forecast.arrow import write_table
from foretell.service.forecast.routes import ARROW
from foretell.training.accuracy import baselines, evaluate
from foretell.training.windows import Windows
from tests.foretell.test_train import SMALL, words
from tests.service.client import Client
from tests.support.command import done, refused

CHANNELS, TARGETS, COLUMNS = ("sun", "load", "wind"), ("sun", "wind"), [0, 2]
CONTEXT, HORIZON = 24, 2
FAMILIES = {
    # The first has enough validation windows for intervals; the second needs refits.
    "transformer": {"rows": 300, "d_model": 8, "label": 12},
    "patchtst": {"rows": 150, "d_model": 8, "patch": 4, "stride": 4},
}
GIVEN = {**SMALL, "context": CONTEXT, "horizon": HORIZON, "patch": None, "stride": None}


def write(folder: Path, rows: int) -> Path:
    noise = np.random.default_rng(3).normal(size=(rows, 3))
    day = np.sin(np.arange(rows) * np.pi / 12)[:, None] * [1, 3, 9] + [10, 20, 30]
    frame = pd.DataFrame((day + noise).round(3), columns=CHANNELS)
    frame.insert(0, "date", pd.date_range("2024-01-01", periods=rows, freq="h"))
    frame.to_csv(folder / "data.csv", index=False)
    return folder / "data.csv"


@pytest.fixture(scope="module", params=FAMILIES)
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with data, the checkpoint `model`, and a repository of its bundle."""
    family = dict(FAMILIES[request.param])
    folder = tmp_path_factory.mktemp(request.param)
    data, out = write(folder, int(family.pop("rows"))), folder / "model"
    settings = {name: each for name, each in (GIVEN | family).items() if each is not None}
    settings |= {"arch": request.param, "target": "wind, sun", "bounds": "wind=0:60"}
    done("train", *words(data=data, out=out, **settings))
    done("export", out, f"--out={folder / 'repository'}", "--force")
    return folder


def windows(folder: Path, loaded: Checkpoint) -> Windows:
    info, config = loaded.info, loaded.info.config
    source = DataSource.recorded(info.data)
    assert source is not None
    panel = source.read(info.channels, "h", folder / "data.csv")  # type: ignore[arg-type]
    split = source.splits.cut(panel, config.context, config.horizon)
    return Windows(panel, split.test, CONTEXT, HORIZON, info.scaler, config.calendar)


def test_accuracy_is_of_the_targets(made: Path) -> None:
    loaded = load(made / "model")
    info, test = loaded.info, loaded.info.test
    assert (info.channels, info.targets, info.config.targets) == (CHANNELS, TARGETS, (0, 2))
    assert len(info.scaler.mean) == 3
    assert test is not None
    all_channels = windows(made, loaded)
    naive = baselines(all_channels, read(made / "repository" / "model" / "1").step)["last_value"]
    errors = []
    for batch in all_channels.batches(1000):
        for forecast, future in (
            (loaded.model(*batch.inputs), batch.future[..., COLUMNS]),
            (torch.as_tensor(naive(*batch.inputs))[..., COLUMNS], batch.future[..., COLUMNS]),
        ):
            errors.append((forecast - future).square().mean().item())
    assert [test.model.mse, test.last_value.mse] == pytest.approx(errors, rel=1e-5)
    # The error over all channels differs.
    assert evaluate(naive, all_channels, 100).mse != pytest.approx(test.last_value.mse, rel=1e-3)


def test_bundle_names_and_calibrates_the_targets(made: Path) -> None:
    manifest = read(made / "repository" / "model" / "1")
    assert (manifest.channels, manifest.targets) == (CHANNELS, TARGETS)
    report = manifest.calibration
    assert report is not None
    assert report.steps == HORIZON
    refitted = manifest.architecture == "patchtst"
    assert (report.method == "scaled_rolling_refits") == refitted
    assert report.coverage
    bundle, checkpoint = (load_subject(made / name) for name in ("repository/model", "model"))
    assert bundle.targets == checkpoint.targets == TARGETS
    np.testing.assert_allclose(bundle.training.std, checkpoint.training.std)


def test_server_answers_the_targets(made: Path) -> None:
    info, model = load(made / "model")
    frame = pd.read_csv(made / "data.csv", parse_dates=["date"]).tail(CONTEXT)
    known = (frame[list(CHANNELS)].to_numpy() - info.scaler.mean) / info.scaler.std
    inputs = [torch.from_numpy(known[None]).float()]
    if info.config.calendar is not None:
        times = pd.date_range(frame["date"].iloc[0], periods=CONTEXT + HORIZON, freq="h")
        encoded = info.config.calendar.encode(times.to_numpy("M8[us]"))
        inputs += [torch.from_numpy(part[None]) for part in np.split(encoded, [CONTEXT])]
    with torch.inference_mode():
        standardised = model(*inputs)[0].numpy()
    scaler = info.target_scaler
    expected = standardised * np.array(scaler.std) + np.array(scaler.mean)

    entry = {
        "series": frame[list(CHANNELS)].to_numpy().tolist(),
        "start_timestamp": frame["date"].iloc[0].isoformat(),
    }
    body = {"model": "model", "inputs": [entry], "options": {"quantiles": [0.1, 0.9]}}
    table = pa.table(
        {"unique_id": ["a"] * CONTEXT, "ds": pa.array(frame["date"], pa.timestamp("us"))}
        | {name: frame[name].to_numpy() for name in CHANNELS}
    )
    with Client(made / "repository") as client:
        content = client.first(body)
        answer = client.request(
            "POST",
            "/forecast?model=model&quantiles=0.1,0.9",
            content=write_table(table),
            headers={"Content-Type": ARROW},
        )
        card = client.get("/models/model").json()
    assert content["channels"] == list(TARGETS)
    np.testing.assert_allclose(content["mean_forecast"], expected, rtol=1e-4)
    found = ipc.open_stream(answer.content).read_all()
    assert found.column_names[:4] == ["unique_id", "ds", *TARGETS]
    assert "load" not in " ".join(found.column_names)
    for column, name in enumerate(TARGETS):
        np.testing.assert_allclose(found[name], expected[:, column], rtol=1e-4)
        for level in ("0.1", "0.9"):
            quantile = np.array(content["quantiles"][level])[:, column]
            np.testing.assert_allclose(found[f"{name}_q{level}"], quantile, rtol=1e-5)
    assert (card["targets"], card["max_horizon"]) == (list(TARGETS), HORIZON)
    assert json.dumps(card["bounds"]) == '{"wind": {"low": 0.0, "high": 60.0}}'


def test_backtest_is_of_the_targets(made: Path) -> None:
    tables = []
    for name in ("repository/model", "model"):
        file = made / f"{name.replace('/', '-')}.csv"
        done("backtest", made / "data.csv", f"--model={made / name}", f"--out={file}")
        tables.append(pd.read_csv(file))
    bundle, checkpoint = tables
    assert list(bundle["channel"].unique()) == list(TARGETS)
    errors = ["mse", "mae", "unit"]
    np.testing.assert_allclose(bundle[errors], checkpoint[errors], rtol=1e-4)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"target": "lod"}, "data.csv: line 1: no column 'lod'; did you mean 'load'?"),
        ({"target": "sun, load", "channels": "sun, wind"}, "target: no channel 'load'; there are"),
        ({"target": "wind", "bounds": "load=0:"}, "bounds: no channel 'load' is forecast"),
        (
            {"arch": "transformer", "target": "wind", "label": 12, "decoding": "autoregressive"},
            "decoding: autoregressive decoding reads its own forecasts",
        ),
    ],
)
def test_unknown_targets_are_refused(
    tmp_path: Path, given: dict[str, object], message: str
) -> None:
    settings = {name: each for name, each in (GIVEN | given).items() if each is not None}
    given = words(data=write(tmp_path, 200), out=tmp_path / "model", **settings)
    assert message in refused("train", *given)
    assert {path.name for path in tmp_path.iterdir()} == {"data.csv"}


def test_all_channels_by_name_mean_no_targets(tmp_path: Path) -> None:
    settings = {**GIVEN, "patch": 4, "stride": 4, "target": "wind,load,sun"}
    done("train", *words(data=write(tmp_path, 200), out=tmp_path / "model", **settings))
    assert load(tmp_path / "model").info.config.targets is None
