from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

from foretell.bundle.covariates import Covariate, Covariates
from foretell.bundle.manifest import Manifest
from foretell.bundle.scaler import Scaler
from foretell.service.forecast.warnings import outside
from tests import golden
from tests.service.client import Client
from tests.service.forecast.bodies import notes_of, request_body, table_of, warned
from tests.service.inference.bodies import infer, request, tensor

EIGHT = [0.1 * n for n in range(8)]
START = "2024-01-01T00:00:00"
# Rows of ETT's published split: the months that are trained on, and those of the test.
TRAIN, TEST = slice(0, 8640), slice(11520, 14400)


def manifest_of(client: Client, channels: tuple[str, ...], scaler: Scaler) -> Manifest:
    own = client.repository.registry.find("multi").manifest
    fields = {"channels": channels, "targets": channels, "scaler": scaler}
    return own.model_copy(update=fields)


ONE = np.ones((1, 1, 1), np.float32)


def test_warnings_of_rolled_steps_and_filled_values(client: Client) -> None:
    gap = {"series": [*EIGHT[:6], None, 0.7]}
    options = {"horizon": 9, "missing": "ffill"}
    rolled, filled = warned(client, request_body(gap, options=options))
    assert (rolled["type"], rolled["param"]) == ("rolled", "options.horizon")
    assert rolled["message"] is not None
    assert "from 4 on" in rolled["message"]
    assert (filled["type"], filled["param"]) == ("filled", "options.missing")
    assert filled["message"] == ("1 missing values of what the model read were filled in (ffill)")
    assert warned(client, request_body({"series": EIGHT}, options={"missing": "ffill"})) == []


def test_warning_of_a_history_in_another_unit(client: Client) -> None:
    distant = [[value, 1000.0] for value in EIGHT]
    near = [[value, 1.0] for value in EIGHT]
    found = warned(client, request_body({"series": near}, {"series": distant}, model="multi"))
    assert [(notice["type"], notice["param"]) for notice in found] == [
        ("outside_training_range", "inputs[1].series"),
        ("forecast_outside_training_range", "inputs[1].series"),
    ]
    for notice, average in zip(found, ("1000", "2000"), strict=True):
        assert notice["message"] is not None
        assert notice["message"].startswith(f"'wind' is {average} on average over ")
    histories = np.array([near, distant], np.float32)
    answer = infer(client, request(tensor(histories)))
    inferred = json.loads(answer.json()["parameters"]["warnings"])
    assert [notice["param"] for notice in inferred] == ["history[1]"] * 2
    assert [notice["message"] for notice in inferred] == [notice["message"] for notice in found]
    columns = {
        "unique_id": ["a"] * 8 + ["b"] * 8,
        **{name: histories[:, :, at].ravel() for at, name in enumerate(("load", "wind"))},
    }
    sent = table_of(client.send_table(pa.table(columns), "/forecast?model=multi"))
    assert [notice["param"] for notice in notes_of(sent)["warnings"]] == ["unique_id=b"] * 2


def test_warning_has_the_place_of_its_input(client: Client) -> None:
    inputs = [{"series": "x"}, {"series": [100.0] * 8}]
    found = warned(client, request_body(*inputs))
    assert {notice["param"] for notice in found} == {"inputs[1].series"}
    found = warned(client, request_body(*[inputs[1]] * 12))
    assert len(found) == 2 * 9
    assert found[8] == {
        "type": "outside_training_range",
        "message": "the same applies to 4 more series",
        "param": None,
    }


@pytest.mark.parametrize("value", [np.nan, np.inf, 3.4e38])
def test_nonfinite_forecasts_raise_no_numpy_warning(client: Client, value: float) -> None:
    manifest = client.repository.registry.find("repeat").manifest
    history = np.full((2, 8, 1), 3.4e38, np.float32)
    forecast = np.zeros((2, 4, 1), np.float32)
    forecast[1, ::2] = value
    forecast[1, 1::2] = -value
    found = outside(manifest, history, forecast, str)
    assert found is not None
    assert [notice["param"] for notice in found] == ["0", "1"]


@pytest.mark.parametrize(
    ("scaler", "history", "forecast", "found"),
    [
        # Scalers without a usable deviation; None if all forecasts are finite.
        *(
            ((0.0, std), 1e6, forecast, found)
            for std in (1.0, 0.0, np.nan)
            for forecast, found in ((1e6, None), (np.inf, []))
        ),
        ((0.0, 1e38), 1e6, np.inf, []),
        ((1e6, 0.001), 1e6, 1e6, None),
    ],
)
def test_extreme_scalers(
    client: Client,
    scaler: tuple[float, float],
    history: float,
    forecast: float,
    found: list[object] | None,
) -> None:
    mean, std = scaler
    manifest = manifest_of(client, ("load",), Scaler(mean=(mean,), std=(std,)))
    assert outside(manifest, history * ONE, forecast * ONE, str) == found
    if mean:
        # A mean of many values is not exact in float32, and is checked again in float64.
        long = np.full((1, 1000, 1), history, np.float32)
        assert outside(manifest, long, forecast * ONE, str) == []


def test_channels_without_training_statistics_are_not_outside(client: Client) -> None:
    """Adopted models scale some channels by themselves, or all, also beside booleans."""
    sale = Covariate(name="sale", type="boolean")
    changes = {"covariates": Covariates(past=(sale,)), "targets": ("load", "wind")}
    values = np.array([[[1000.0, 1000.0, 1.0]]], np.float32)
    for means, stds, far in (
        ((0.0, 0.0, 0.0), (1.0, 1.0, 1.0), []),
        ((0.0, 5.0, 0.0), (1.0, 2.0, 1.0), ["'wind' is 1000"] * 2),
    ):
        scaler = Scaler(mean=means, std=stds)
        found = manifest_of(client, ("load", "wind", "sale"), scaler).model_copy(update=changes)
        warnings = outside(found, values, values[..., :2], str) or []
        assert [str(each["message"]).partition(" on ")[0] for each in warnings] == far


def windows(values: NDArray[np.float64], context: int) -> NDArray[np.float32]:
    """Every window of rows `[windows, context, channels]`."""
    found = np.lib.stride_tricks.sliding_window_view(values, context, axis=0)
    return found.transpose(0, 2, 1).astype(np.float32)


def ett(name: str) -> tuple[tuple[str, ...], NDArray[np.float64]]:
    path: Path = golden.shared(f"data/ETT-small/{name}.csv")
    with path.open() as file:
        names = file.readline().strip().split(",")[1:]
        return tuple(names), np.loadtxt(file, delimiter=",", usecols=range(1, 8))


@pytest.mark.parametrize("name", ["ETTh1", "ETTh2"])
def test_drift_gives_no_warning_and_another_unit_gives_one(client: Client, name: str) -> None:
    names, values = ett(name)
    training = values[TRAIN]
    mean, std = training.mean(axis=0), training.std(axis=0)
    scaler = Scaler(mean=tuple(mean.tolist()), std=tuple(std.tolist()))
    manifest = manifest_of(client, names, scaler)
    assert np.abs((values[TEST] - mean) / std).max() < 9
    for context in (96, 168, 336):
        rows = slice(TEST.start - context, TEST.stop)
        histories = windows(values[rows], context)
        assert not outside(manifest, histories, histories, str)
        thousandfold = np.float32(1000) * histories
        found = outside(manifest, thousandfold, histories, str)
        assert found[-1]["message"] == f"the same applies to {len(histories) - 8} more series"
    # The oil's temperature, as it is on average, in °F.
    fahrenheit = np.float32(mean) * np.ones((1, 96, len(names)), np.float32)
    fahrenheit[:, :, -1] = 1.8 * fahrenheit[:, :, -1] + 32
    (warning,) = outside(manifest, fahrenheit, histories[:1], str)
    assert warning["message"] is not None
    assert warning["message"].startswith("'OT' is ")
