"""Tables with covariates: inspected, trained on by options and by YAML, and exported."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from foretell.bundle.manifest import read
from foretell.data.source import DataSource
from foretell.models.checkpoint import load_info
from tests.foretell.test_train import as_yaml, words
from tests.support.command import done, refused

SMALL = {"arch": "dlinear", "context": 24, "horizon": 2, "epochs": 1}
KINDS = {"future_covariates": "price,holiday,sky", "past_covariates": "wind,state",
         "static_covariates": "region"}  # fmt: skip
HOURS = 300


@pytest.fixture
def data(tmp_path: Path) -> Path:
    times = pd.Series(pd.date_range("2024-01-01", periods=HOURS, freq="h"))
    random = np.random.default_rng(0)
    parts = []
    for name, region in (("a", "north"), ("b", "south"), ("c", "south")):
        noise = random.normal(size=(4, HOURS)).round(3)
        parts.append(
            pd.DataFrame(
                {
                    "id": name,
                    "ds": times,
                    "load": 2 * noise[0] + noise[1],
                    "price": noise[0],
                    "holiday": times.dt.day.isin([3, 7]),
                    "sky": np.where(noise[2] > 0, "sun", "rain"),
                    "wind": noise[3],
                    "state": np.where(noise[3] > 0, "on", "off"),
                    "region": region,
                }
            )
        )
    path = tmp_path / "data.csv"
    pd.concat(parts).to_csv(path, index=False)
    return path


def test_options_and_yaml_train_and_export_alike(data: Path, tmp_path: Path) -> None:
    plain, other = tmp_path / "plain", tmp_path / "other"
    done("train", *words(data=data, out=plain, **SMALL, **KINDS))
    file = tmp_path / "settings.yaml"
    file.write_text(as_yaml(**SMALL, **KINDS | {"past_covariates": ["wind", "state"]}))
    done("train", f"--config={file}", f"--data={data}", f"--out={other}")
    info = load_info(plain)
    assert info == load_info(other)
    assert info.channels == ("load", "wind", "state=off", "state=on")
    assert info.targets == ("load",)
    source = DataSource.recorded(info.data)
    assert source is not None
    assert source.reading.kinds.names == (
        *("price", "holiday", "sky"), *("wind", "state"), "region"
    )  # fmt: skip
    done("export", plain, f"--out={tmp_path / 'models'}", "--force")
    manifest = read(tmp_path / "models" / "plain" / "1")
    assert manifest.covariates == info.config.covariates
    assert manifest.covariates is not None
    assert [each.type for each in manifest.covariates.future] == ["number", "boolean", "category"]
    tables = []
    for model in (plain, tmp_path / "models" / "plain"):
        errors = tmp_path / "errors.csv"
        how = ("--id-column=id", "--time-column=ds", "--stride=5")
        ended = done("backtest", data, f"--model={model}", f"--out={errors}", *how)
        assert (
            "note: the model reads the values of future covariates that came true" in ended.stderr
        )
        tables.append(pd.read_csv(errors))
    np.testing.assert_allclose(tables[0]["mae"], tables[1]["mae"], rtol=1e-4)


def test_kinds_are_proposed(data: Path) -> None:
    printed = done("inspect", data, "--target=load").stdout
    for line in (
        "covariates --future-covariates=holiday: known ahead, such as facts of the calendar",
        "covariates --past-covariates=price,sky,wind,state: read and not forecast",
        "covariates --static-covariates=region: one value for each series",
    ):
        assert line in printed
    start = printed.splitlines()[-1]
    assert "--target=load --future-covariates=holiday --past-covariates=price" in start
    named = ("--channels=load", "--past-covariates=sky", "--static-covariates=region")
    known = "--future-covariates=holiday,price,wind,state"
    assert "\ncovariates" not in done("inspect", data, known, *named).stdout


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"future_covariates": "prise"}, "data.csv: line 1: no column 'prise'; did you mean"),
        ({"static_covariates": "price"}, "column 'price': "),
        ({"future_covariates": "price", "past_covariates": "price"}, "past_covariates: 'price' is"),
        ({"past_covariates": "wind", "target": "wind"}, "target: 'wind' is a covariate, which"),
        ({"future_covariates": "wind", "target": "wind"}, "target: 'wind' is a covariate, which"),
    ],
)
def test_wrong_kinds_are_refused(data: Path, given: dict[str, str], message: str) -> None:
    settings = {**SMALL, "channels": "load", **given}
    assert message in refused("train", *words(data=data, out=data.parent / "model", **settings))
