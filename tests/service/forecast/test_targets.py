"""A model that does not forecast all it reads answers as one that does, less the others."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from foretell.bundle.bounds import Bound
from foretell.bundle.manifest import Scaler
from foretell.service.inference.wire import describe
from tests.service.client import Client
from tests.service.forecast.bodies import notes_of, table_of
from tests.support.bundles import Spec, write_bundle

CHANNELS, TARGETS, COLUMNS = ("load", "wind", "sun"), ("wind", "sun"), [1, 2]
START, ROWS = "2024-03-01T00:00:00", 60
LEVELS = [0.1, 0.9]
CHANGES: dict[str, Any] = {
    "bounds": {"sun": Bound(low=-2.0)},
    "scaler": Scaler(mean=(0.0, 0.0, 1.0), std=(1.0, 3.0, 5.0)),
}
SPEC: dict[str, Any] = {"channels": CHANNELS, "calibrated": 1, "changes": CHANGES}


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """One model that forecasts all of three channels and one that forecasts two."""
    folder = tmp_path_factory.mktemp("models")
    write_bundle(folder, Spec(name="whole", **SPEC))
    write_bundle(folder, Spec(name="some", targets=TARGETS, **SPEC))
    with Client(folder) as client:
        yield client


def values() -> np.ndarray:
    return np.random.default_rng(5).normal(size=(ROWS, 3)).round(3)


def asked(model: str, **options: Any) -> dict[str, Any]:
    series = {"series": values().tolist(), "start_timestamp": START}
    return {"model": model, "inputs": [series], "options": options}


def first(client: Client, path: str, body: dict[str, Any]) -> tuple[dict[str, Any], Any]:
    answer = client.request("POST", path, json=body)
    assert answer.status_code == 200, answer.text
    found = answer.json()
    return found["outputs"][0]["content"][0], found.get("warnings")


@pytest.mark.parametrize("calibration", ["stored", "history"])
def test_json(client: Client, calibration: str) -> None:
    options = {"quantiles": LEVELS, "calibration": calibration}
    some, _ = first(client, "/forecast", asked("some", **options))
    whole, _ = first(client, "/forecast", asked("whole", **options))
    assert some["channels"] == list(TARGETS)
    assert some["type"] == "multivariate_time_series"
    found, expected = (
        np.array([each["mean_forecast"], *each["quantiles"].values()]) for each in (some, whole)
    )
    assert found.shape == (3, 4, 2)
    np.testing.assert_array_equal(found, expected[..., COLUMNS])
    assert some.get("calibration") == whole.get("calibration")
    assert (np.array(some["quantiles"]["0.1"])[:, 1] == -2).any()


def test_columns_in_another_order_do_not_change_that_of_the_answer(client: Client) -> None:
    body = asked("some")
    plain, _ = first(client, "/forecast", body)
    (entry,) = body["inputs"]
    entry |= {"channels": ["sun", "load", "wind"], "series": values()[:, [2, 0, 1]].tolist()}
    other, _ = first(client, "/forecast", body)
    assert other["channels"] == list(TARGETS)
    assert other["mean_forecast"] == plain["mean_forecast"]
    found, _ = first(client, "/backtest", body)
    assert [each["name"] for each in found["channels"]] == list(TARGETS)


def test_tables(client: Client) -> None:
    hours = [datetime(2024, 1, 1) + timedelta(hours=hour) for hour in range(ROWS)]
    named = dict(zip(CHANNELS, values().T, strict=True))
    table = pa.table({"unique_id": ["a"] * ROWS, "ds": hours, **named})
    found = {}
    for model in ("some", "whole"):
        path = f"/forecast?model={model}&quantiles=0.1,0.9&calibration=history"
        found[model] = table_of(client.send_table(table, path))
    columns = ["wind", "sun", "wind_q0.1", "sun_q0.1", "wind_q0.9", "sun_q0.9"]
    assert found["some"].column_names == ["unique_id", "ds", *columns]
    assert found["some"].select(columns).equals(found["whole"].select(columns))
    assert notes_of(found["some"])["calibration"] == notes_of(found["whole"])["calibration"]


@pytest.mark.parametrize("calibration", ["stored", "history"])
def test_backtest(client: Client, calibration: str) -> None:
    options = {"horizon": 3, "stride": 2, "quantiles": LEVELS, "calibration": calibration}
    some, _ = first(client, "/backtest", asked("some", **options))
    whole, _ = first(client, "/backtest", asked("whole", **options))
    assert some["channels"] == whole["channels"][1:]
    assert some["origins"] == whole["origins"]
    assert some.get("calibration") == whole.get("calibration")


@pytest.mark.parametrize("channel", range(3))
def test_warnings(client: Client, channel: int) -> None:
    """Of each channel that is read, and of the forecasts that there are."""
    far = values()
    far[:, channel] += 40
    found = {}
    for model in ("some", "whole"):
        body = asked(model)
        body["inputs"][0]["series"] = far.tolist()
        _, found[model] = first(client, "/forecast", body)
    expected = found["whole"]
    if channel not in COLUMNS:
        expected = [each for each in expected if not each["type"].startswith("forecast")]
        assert len(expected) < len(found["whole"])
    assert found["some"] == expected


@pytest.mark.parametrize("path", ["/forecast", "/backtest"])
def test_it_does_not_go_on_from_its_own_forecasts(client: Client, path: str) -> None:
    answer = client.request("POST", path, json=asked("some", horizon=5))
    assert answer.status_code == 422
    error = answer.json()["error"]
    assert error["param"] == "options.horizon"
    assert error["message"].startswith("expected at most 4 steps: some does not forecast all")
    assert client.request("POST", "/forecast", json=asked("whole", horizon=5)).status_code == 200


def test_what_is_said_of_it(client: Client) -> None:
    some, whole = (client.get(f"/models/{name}").json() for name in ("some", "whole"))
    assert (some["channels"], some["targets"]) == (list(CHANNELS), list(TARGETS))
    assert (some["horizon"], some["max_horizon"]) == (4, 4)
    assert (whole["targets"], whole["max_horizon"]) == (list(CHANNELS), 16)
    metadata = describe(client.repository.registry.find("some"), ["1"])
    assert [each.shape for each in metadata.inputs] == [[-1, 8, 3]]
    assert [each.shape for each in metadata.outputs] == [[-1, 4, 2]]


def test_the_open_inference_protocol(client: Client) -> None:
    data = {"name": "history", "datatype": "FP32", "shape": [1, 8, 3]}
    history = values()[-8:].astype(np.float32)
    body = {"inputs": [data | {"data": history.ravel().tolist()}]}
    answer = client.request("POST", "/v2/models/some/infer", json=body)
    assert answer.status_code == 200, answer.text
    (output,) = answer.json()["outputs"]
    assert output["shape"] == [1, 4, 2]
    expected = np.tile(history[-1, COLUMNS] * [2, 3], 4)
    np.testing.assert_allclose(output["data"], expected, rtol=1e-6)
