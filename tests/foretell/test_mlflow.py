from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from foretell.client.errors import InvalidInputError
from foretell.predict.in_process import opened
from tests.support.bundles import Spec, write_bundle
from tests.support.command import done, refused

pyfunc = pytest.importorskip("mlflow.pyfunc", reason="extra mlflow")
pytestmark = [
    # Warnings within MLflow.
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]

SPEC = Spec(name="house", channels=("load", "wind"), calibrated=2)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    write_bundle(folder, SPEC)
    write_bundle(folder, Spec(name="calendar", with_calendar=True, example=12))
    return folder


def frame(rows: int = 12) -> pd.DataFrame:
    values = np.random.default_rng(0).normal(size=(rows, 2))
    table = pd.DataFrame(values, columns=["load", "wind"])
    # As MLflow has times.
    times = pd.date_range("2024-01-01", periods=rows, freq="h").astype("datetime64[ns]")
    table.insert(0, "ds", times)
    return table


def test_model_predicts_what_the_bundle_forecasts(models: Path, tmp_path: Path) -> None:
    result = done("export", models / "house", f"--mlflow={tmp_path / 'model'}")
    assert result.stdout.endswith(f"written to {tmp_path / 'model'}\n")
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
    model = pyfunc.load_model(str(tmp_path / "model"))
    assert [column.name for column in model.metadata.signature.inputs] == [
        *("unique_id", "ds", "load", "wind")
    ]
    params = {"horizon": 6, "quantiles": [0.1, 0.9]}
    panel = pd.concat([frame().assign(unique_id=name) for name in ("one", "two")])
    with opened(models / "house", "cpu") as client:
        pd.testing.assert_frame_equal(model.predict(frame()), client.forecast(frame()))
        for table in (frame(), panel):
            found = model.predict(table, params=params)
            pd.testing.assert_frame_equal(found, client.forecast(table, **params))
    assert {"unique_id", "ds", "load_q0.1", "wind_q0.9"} <= set(found.columns)
    holes = frame()
    holes.loc[11, "load"] = np.nan
    with pytest.raises(InvalidInputError, match="a value is missing"):
        model.predict(holes)
    filled = model.predict(holes, params={"missing": "ffill"})
    assert np.allclose(filled.load, frame().load[10])


def test_example_is_the_bundles(models: Path, tmp_path: Path) -> None:
    done("export", models / "calendar", f"--mlflow={tmp_path / 'model'}")
    model = pyfunc.load_model(str(tmp_path / "model"))
    example = model.input_example
    assert example.load.tolist() == [*range(5, 13)]
    assert len(model.predict(example)) == 4
    required = {column.name: column.required for column in model.metadata.signature.inputs}
    assert required == {"unique_id": False, "ds": True, "load": True}


def test_existing_folder_is_refused_before_the_export(
    models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr("foretell.commands.export._export")
    (tmp_path / "there").mkdir()
    there = f"--mlflow={tmp_path / 'there'}"
    for given in (
        [tmp_path, f"--out={tmp_path / 'models'}", there],
        [models / "house", f"--triton={tmp_path / 'triton'}", there],
    ):
        message = refused("export", *given)
        assert message == f"foretell export: {tmp_path / 'there'}: exists already\n"
    assert [path.name for path in tmp_path.iterdir()] == ["there"]


def test_damaged_bundle_writes_nothing(tmp_path: Path) -> None:
    write_bundle(tmp_path, SPEC)
    (tmp_path / "house" / "1" / "weights.bin").write_bytes(b"")
    refused("export", tmp_path / "house", f"--mlflow={tmp_path / 'model'}")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["house"]
