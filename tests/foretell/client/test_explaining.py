"""Attention by the client, against a real server."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

from foretell import Client
from foretell.client import ForetellWarning, InvalidInputError, Patch

HOURS = pd.date_range("2024-03-01", periods=9, freq="h", tz="Europe/Berlin")
FRAME = pd.DataFrame({"load": np.arange(9) / 8}, HOURS)
LONG = pd.DataFrame(
    {
        "sku": [*"ab"] * 9,
        "at": HOURS.repeat(2),
        "wind": np.arange(18.0) / 8,
        "load": -np.arange(18.0) / 8,
    }
)


def test_maps_with_their_labels(client: Client) -> None:
    found = client.explain(FRAME, model="load", heads="mean", horizon=2)
    assert (found.model, found.targets) == ("load", ("load",))
    np.testing.assert_array_equal(found.values, [[1], [1]])
    assert found.timestamps == ("2024-03-01T09:00:00+01:00", "2024-03-01T10:00:00+01:00")
    dense, circulant = found.stages
    assert (dense.form, dense.axes) == ("dense", ("query", "key"))
    assert dense.weights is not None
    assert dense.weights.shape == (3, 3)
    assert dense.key is not None
    assert dense.key[0] == Patch(start="2024-03-01T01:00:00+01:00", end="2024-03-01T04:00:00+01:00")
    assert circulant.lags is not None
    assert circulant.lag_durations == tuple(f"PT{lag}H" for lag in circulant.lags)
    assert circulant.correlation is not None
    assert circulant.correlation.shape == (8,)


def test_explain_selects_stages_and_heads(client: Client) -> None:
    frame = pl.DataFrame({"y": np.arange(8.0)})
    found = client.explain(frame, model="load", stages=["encoder.0.self"], heads=[1])
    (stage,) = found.stages
    assert stage.heads == (1,)
    assert found.timestamps == ()
    assert stage.key is not None
    assert stage.key[-1] == Patch(start=-4, end=-1)


def test_one_of_several_series(client: Client) -> None:
    found = client.explain(LONG, model="two", series="b", id_column="sku")
    assert found.targets == ("load", "wind")
    # The model doubles its second channel.
    np.testing.assert_array_equal(found.values, [[-17 / 8, 34 / 8]] * 4)
    (stage,) = found.stages
    assert stage.form == "circulant"


def test_the_clock_of_the_frames_zone_changes(client: Client) -> None:
    hours = pd.date_range("2024-03-30T18", periods=8, freq="h", tz="Europe/Berlin")
    found = client.explain(FRAME.head(8).set_index(hours), model="load", heads="mean", horizon=1)
    assert found.timestamps == ("2024-03-31T03:00:00+02:00",)


def test_warnings_are_python_warnings(client: Client) -> None:
    with pytest.warns(ForetellWarning, match="^'load' is 10") as warned:
        client.explain(FRAME + 100, model="load", heads="mean")
    assert warned[0].filename == __file__


def gap(row: int) -> pd.DataFrame:
    frame = FRAME.copy()
    frame.iloc[row] = np.nan
    return frame


@pytest.mark.parametrize(
    ("frame", "options", "message"),
    [
        (FRAME.tail(3), {}, "^expected at least 8 rows"),
        (gap(5), {}, r"^load\[5\]: "),
        (FRAME.drop(HOURS[4]).reset_index(names="at"), {}, r"^at\[4\]: expected"),
        (
            LONG.assign(wind=LONG["wind"].where(LONG.index != 13)),
            {"model": "two", "id_column": "sku", "series": "b"},
            r"^wind\[13\]: ",
        ),
        (FRAME.astype(str), {}, "^load: expected a column of numbers"),
        (FRAME.rename(columns={"load": "lode"}), {}, "^load: expected one column .* mean 'lode'"),
        (FRAME.assign(at=HOURS.astype(str)).reset_index(drop=True), {"time_column": "at"}, "^at: "),
        (FRAME, {"horizon": 99}, "^horizon: expected at most 16"),
        (FRAME, {"stages": ["encoder.9"]}, r"^stages\[0\]: expected one of"),
        (LONG, {"model": "two", "id_column": "sku"}, "^series: .* such as series='a'"),
        (LONG, {"model": "two", "id_column": "sku", "series": "c"}, "^sku: no row of 'c'"),
        (
            pd.concat([LONG.head(12), LONG.tail(4)], ignore_index=True),
            {"model": "two", "id_column": "sku", "series": "b"},
            r"^at\[13\]: ",
        ),
        (LONG.assign(at=LONG["at"].where(LONG.index != 3)), {"id_column": "sku"}, "^series"),
        (
            LONG.assign(at=LONG["at"].where(LONG.index != 3)),
            {"model": "two", "id_column": "sku", "series": "b"},
            r"^at\[3\]: expected a timestamp, got null",
        ),
    ],
)
def test_explain_refuses_invalid_requests(
    client: Client, frame: pd.DataFrame, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidInputError, match=message):
        client.explain(frame, **{"model": "load", **options})
