"""`foretell predict` with covariates: forecasts of a file equal those of requests."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from foretell.bundle.manifest import read
from foretell.client.cards import ModelCard
from foretell.data.reading import Reading
from foretell.predict.histories import read_histories
from foretell.report.example import run_example
from tests.service.client import Client
from tests.service.forecast.shops import (
    CONTEXT,
    HORIZON,
    KIOSK,
    SHOP,
    kiosk,
    models,
    server,
    shop,
)
from tests.service.forecast.test_table_covariates import TARGETS, columns_of, joined
from tests.support.command import done, refused, run

__all__ = ["models", "server"]

SERVED = (SHOP, KIOSK)
START = {"start_timestamp": "2024-01-01T00:00:00"}


def entries(model: str, ahead: int = HORIZON) -> list[dict[str, Any]]:
    """Two series, longer than the context."""
    if model == "kiosk":
        return [kiosk(CONTEXT + 2, shift) for shift in range(2)]
    return [shop(CONTEXT + 2, ahead, shift) | START for shift in range(2)]


def written(given: list[dict[str, Any]], model: str, path: Path) -> Path:
    parts = [columns_of(each, model, name) for each, name in zip(given, "ab", strict=True)]
    frame = pd.DataFrame(joined(*parts))
    frame.to_csv(path, index=False) if path.suffix == ".csv" else frame.to_parquet(path)
    return path


def predicted(models: Path, model: str, file: Path, *words: str) -> np.ndarray[Any, Any]:
    """Forecasts `[series, steps, targets]`."""
    out = file.with_name("out.csv")
    done("predict", f"--bundle={models / model}", file, f"--out={out}", "--overwrite", *words)
    frame = pd.read_csv(out)
    found: np.ndarray[Any, Any] = frame[TARGETS[model]].to_numpy()
    return found.reshape(2, -1, len(TARGETS[model]))


@pytest.mark.parametrize("ending", [".csv", ".parquet"])
@pytest.mark.parametrize(("model", "horizon"), [("shop", 4), ("shop", 6), ("kiosk", 2)])
def test_forecasts_of_a_file_are_those_of_a_request(
    server: Client, models: Path, tmp_path: Path, model: str, horizon: int, ending: str
) -> None:
    given = entries(model, -(-horizon // HORIZON) * HORIZON)
    file = written(given, model, tmp_path / f"given{ending}")
    found = predicted(models, model, file, f"--horizon={horizon}")
    answer = server.forecast({"model": model, "inputs": given, "options": {"horizon": horizon}})
    for values, output in zip(found, answer.json()["outputs"], strict=True):
        expected = np.reshape(output["content"][0]["mean_forecast"], values.shape)
        np.testing.assert_allclose(values, expected, rtol=1e-6)


def test_rows_that_are_held_out_have_known_covariates(
    server: Client, models: Path, tmp_path: Path
) -> None:
    given = [shop(CONTEXT + 3, HORIZON, shift) | START for shift in range(2)]
    found = predicted(models, "shop", written(given, "shop", tmp_path / "a.csv"), "--holdout=3")
    for values, entry in zip(found, given, strict=True):
        entry["series"] = entry["series"][:-3]
        future = entry["future_covariates"]
        future |= {name: each[: CONTEXT + HORIZON] for name, each in future.items()}
        expected = server.first({"model": "shop", "inputs": [entry]})["mean_forecast"]
        np.testing.assert_allclose(values, expected, rtol=1e-6)


def test_gaps_are_filled_in_rows_and_in_the_future(
    server: Client, models: Path, tmp_path: Path
) -> None:
    given = entries("shop")
    for entry in given:
        entry["future_covariates"]["sky"][CONTEXT + 3] = None
        entry["future_covariates"]["price"][CONTEXT] = None
    file = written(given, "shop", tmp_path / "given.csv")
    found = predicted(models, "shop", file, "--missing=ffill")
    request = {"model": "shop", "inputs": given, "options": {"missing": "ffill"}}
    for values, output in zip(found, server.forecast(request).json()["outputs"], strict=True):
        np.testing.assert_allclose(values, output["content"][0]["mean_forecast"], rtol=1e-6)
    assert "column 'price': no value; --missing" in refused(
        "predict", f"--bundle={models / 'shop'}", file
    )


Change = Callable[[list[dict[str, Any]]], object]
FUTURE, PAST, STATIC = "future_covariates", "past_covariates", "static_covariates"
WRONG: list[tuple[str, Change, str]] = [
    (
        "shop",
        lambda given: given[1][FUTURE]["sky"].__setitem__(5, "rian"),
        "warning: series b has no forecast: b, column 'sky', 2024-01-01T05:00:00: expected a "
        "category of the training rows, got 'rian'; did you mean 'rain'?",
    ),
    (
        "shop",
        lambda given: given[1][FUTURE]["sky"].__setitem__(13, "rian"),
        "series b has no forecast: b, column 'sky', 2024-01-01T13:00:00: expected a category",
    ),
    (
        "kiosk",
        lambda given: given[0][PAST]["staff"].__setitem__(4, "lots"),
        "series a has no forecast: a, column 'staff', 2024-01-01T04:00:00: expected a category",
    ),
    (
        "shop",
        lambda given: [each[STATIC].__setitem__("size", "large") for each in given],
        "foretell predict: a, column 'size': expected a number, got 'large'",
    ),
]


@pytest.mark.parametrize(("model", "change", "message"), WRONG)
def test_wrong_values_are_named_by_column_and_time(
    models: Path, tmp_path: Path, model: str, change: Change, message: str
) -> None:
    given = copy.deepcopy(entries(model))
    change(given)
    file = written(given, model, tmp_path / "given.csv")
    result = run("predict", f"--bundle={models / model}", file)
    assert result.exit_code in (1, 2)
    assert message in result.stderr


def test_future_that_is_too_short_is_refused(models: Path, tmp_path: Path) -> None:
    file = written(entries("shop", 2), "shop", tmp_path / "given.csv")
    words = f"--bundle={models / 'shop'}", "--horizon=2"
    assert refused("predict", file, *words).endswith(
        "given.csv: expected 4 rows after 2024-01-01T09:00:00 of series a, with values of price, "
        "open, sky, which shop reads for whole horizons of 4; got 2\n"
    )


CARD = ModelCard.model_validate(
    {
        "name": "depot",
        "version": "1",
        "versions": ["1"],
        "channels": ["sales", "shift=0", "shift=1", "shift=2", "lit"],
        "targets": ["sales"],
        "context": 4,
        "horizon": 2,
        "frequency": "h",
        "covariates": {
            "future": [
                {"name": "grade", "type": "category", "categories": ["2.0", "2.5", "XL"]},
                {"name": "flag", "type": "category", "categories": ["false", "maybe", "true"]},
                {"name": "day", "type": "category", "categories": ["0", "5", "6"]},
                {"name": "open", "type": "boolean"},
            ],
            "past": [
                {"name": "shift", "type": "category", "categories": ["0", "1", "2"]},
                {"name": "lit", "type": "boolean"},
            ],
            "static": [{"name": "tier", "type": "category", "categories": ["1.0", "2.0"]}],
        },
    }
)


@pytest.mark.parametrize("ending", [".csv", ".parquet"])
def test_columns_have_the_types_and_categories_of_the_model(tmp_path: Path, ending: str) -> None:
    """The rows that are read do not show them, and a gap of a category repeats the one before."""
    frame = pd.DataFrame(
        {
            "ds": pd.date_range("2024-01-01", periods=6, freq="h"),
            "sales": [1.0, 2.0, 3.0, 4.0, None, None],
            "grade": [2.0, 2.5, 2.0, 2.0, 2.5, 2.0],
            "flag": [True, False, True, True, False, False],
            "day": [0, None, 6, 6, 5, 7],
            "open": [0, None, 1, 1, 0, 0],
            "shift": [0, None, 2, 1, None, None],
            "lit": [1, None, 0, 0, None, None],
            "tier": [1] * 6,
        }
    )
    path = tmp_path / f"given{ending}"
    frame.to_csv(path, index=False) if ending == ".csv" else frame.to_parquet(path)
    (history,), _ = read_histories(path, CARD, Reading(missing="interpolate"), (), 0)
    assert history.fields == {
        "channels": ("sales",),
        "future_covariates": {
            "grade": ["2.0", "2.5", "2.0", "2.0", "2.5", "2.0"],
            "flag": ["true", "false", "true", "true", "false", "false"],
            "day": ["0", "0", "6", "6", "5", "7"],
            "open": [False, False, True, True, False, False],
        },
        "past_covariates": {"shift": ["0", "0", "2", "1"], "lit": [True, True, False, False]},
        "static_covariates": {"tier": "1.0"},
    }


def test_report_forecasts_the_example_with_its_covariates(models: Path) -> None:
    folder = models / "shop" / "1"
    found = run_example(folder, read(folder))
    assert found is not None
    assert found[0].values.shape == (HORIZON, 2)
