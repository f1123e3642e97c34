"""The nixtla client of PyPI against a real server under a prefix."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import orjson
import pandas as pd
import polars as pl
import pytest

from tests.docs.pages import blocks
from tests.service.nixtla.conftest import AIR
from tests.support.process import ROOT, Server

nixtla = pytest.importorskip("nixtla", reason="installed without its requirements (Makefile)")
pytestmark = [
    # The client requires pandas 2.
    pytest.mark.filterwarnings("ignore:A future version of pandas"),
    pytest.mark.filterwarnings("ignore:IProgress not found"),
]

PAGE = ROOT / "docs" / "guides" / "nixtla.md"

# Monthly airline passengers in thousands, 1949 to 1960 (Box & Jenkins, series G).
PASSENGERS = """
112 118 132 129 121 135 148 148 136 119 104 118 115 126 141 135 125 149 170 170 158 133 114 140
145 150 178 163 172 178 199 199 184 162 146 166 171 180 193 181 183 218 230 242 209 191 172 194
196 196 236 235 229 243 264 272 237 211 180 201 204 188 235 227 234 264 302 293 259 229 203 229
242 233 267 269 270 315 364 347 312 274 237 278 284 277 317 313 318 374 413 405 355 306 271 306
315 301 356 348 355 422 465 467 404 347 305 336 340 318 362 348 363 435 491 505 404 359 310 337
360 342 406 396 420 472 548 559 463 407 362 405 417 391 419 461 472 535 622 606 508 461 390 432
"""
VALUES = np.array(PASSENGERS.split(), float)
MONTHS = pd.date_range("1949-01-01", periods=len(VALUES), freq="MS")


def passengers() -> pd.DataFrame:
    return pd.DataFrame({"timestamp": MONTHS, "value": VALUES})


def panel() -> pd.DataFrame:
    """Three airlines; the second one has fewer months."""
    sizes = {"a": 144, "b": 100, "c": 144}
    parts = [
        pd.DataFrame({"unique_id": name, "ds": MONTHS[-size:], "y": VALUES[-size:] * factor})
        for factor, (name, size) in enumerate(sizes.items(), 1)
    ]
    return pd.concat(parts, ignore_index=True)


@pytest.fixture(scope="module")
def server(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    log = tmp_path_factory.mktemp("log") / "log"
    settings = {"threads": 1, "api_keys": "key", "root_path": "/forecasts", "max_inputs": 4}
    with Server(repository, log, **settings) as server:
        yield server


@pytest.fixture
def client(server: Server) -> Any:
    return nixtla.NixtlaClient(
        api_key="key", base_url=f"{server.url}/forecasts/nixtla", max_retries=1
    )


Ask = Callable[..., dict[str, Any]]


@pytest.fixture
def ask(server: Server) -> Ask:
    """The forecast of the first series by `POST /forecast`."""

    def forecast(model: str, entry: dict[str, Any], **options: Any) -> dict[str, Any]:
        answer = httpx.post(
            f"{server.url}/forecast",
            json={"model": model, "inputs": [entry], "options": options},
            headers={"X-API-Key": "key"},
        )
        assert answer.status_code == 200, answer.text
        content: dict[str, Any] = answer.json()["outputs"][0]["content"][0]
        return content

    return forecast


def refusal(call: Callable[[], object]) -> tuple[int, str]:
    """Status and text of the client's error."""
    with pytest.raises(nixtla.ApiError) as caught:
        call()
    assert caught.value.body.keys() == {"detail"}
    return caught.value.status_code, caught.value.body["detail"]


def test_key_and_models_of_one_channel(client: Any, server: Server) -> None:
    assert client.validate_api_key()
    assert client.list_models() == ["air", "daily", "hourly", "other"]
    stranger = nixtla.NixtlaClient(api_key="none", base_url=f"{server.url}/nixtla", max_retries=1)
    assert not stranger.validate_api_key()
    status, text = refusal(lambda: stranger.forecast(passengers(), h=1, **COLUMNS))
    assert (status, text) == (401, "the key is not one of this server's")


COLUMNS: dict[str, Any] = {"time_col": "timestamp", "target_col": "value", "freq": "MS"}


@pytest.mark.parametrize("h", [3, 12, 20])
def test_forecast_with_levels_equals_post_forecast(client: Any, ask: Ask, h: int) -> None:
    found = client.forecast(
        df=passengers(), h=h, level=[80, 90.5], time_col="timestamp", target_col="value"
    )
    expected = ask(
        "air", {"series": VALUES.tolist()}, horizon=h, quantiles=[0.1, 0.9, 0.0475, 0.9525]
    )
    assert found.timestamp.tolist() == pd.date_range("1961-01-01", periods=h, freq="MS").tolist()
    assert found.TimeGPT.tolist() == expected["mean_forecast"]
    names = {"lo-80": "0.1", "hi-80": "0.9", "lo-90.5": "0.0475", "hi-90.5": "0.9525"}
    for name, level in names.items():
        assert found[f"TimeGPT-{name}"].tolist() == expected["quantiles"][level]
    assert found.columns.size == 6


def test_quantiles(client: Any, ask: Ask) -> None:
    given = {"calibration": "history"}
    arguments = {"df": passengers(), "h": 2, "quantiles": [0.1, 0.5, 0.9], **COLUMNS}
    for parameters in ({}, given):
        found = client.forecast(model_parameters=parameters or None, **arguments)
        # The client sends these quantiles for levels.
        sent = VALUES[-(3 * AIR.context + AIR.horizon) :].tolist()
        expected = ask("air", {"series": sent}, horizon=2, quantiles=[0.1, 0.9], **parameters)
        assert found.columns[2:].tolist() == ["TimeGPT-q-10", "TimeGPT-q-50", "TimeGPT-q-90"]
        assert found["TimeGPT-q-10"].tolist() == expected["quantiles"]["0.1"]
        assert found["TimeGPT-q-50"].tolist() == expected["mean_forecast"]
        assert found["TimeGPT-q-90"].tolist() == expected["quantiles"]["0.9"]


@pytest.mark.parametrize(
    ("frame", "freq", "partitions"),
    [(panel, "MS", None), (panel, "MS", 2), (lambda: pl.from_pandas(panel()), "1mo", None)],
    ids=["pandas", "in partitions", "polars"],
)
def test_a_panel(client: Any, frame: Callable[[], Any], freq: str, partitions: int | None) -> None:
    found = client.forecast(frame(), h=2, level=[80], freq=freq, num_partitions=partitions)
    assert isinstance(found, type(frame()))
    assert [*found["unique_id"]] == ["a", "a", "b", "b", "c", "c"]
    assert [*found["TimeGPT"]] == [432, 432, 864, 864, 1296, 1296]
    assert (found["TimeGPT-lo-80"] < found["TimeGPT"]).all()
    assert (found["TimeGPT"] < found["TimeGPT-hi-80"]).all()


def test_polars(client: Any) -> None:
    found = client.forecast(pl.from_pandas(panel()), h=2, freq="1mo", level=[80])
    expected = client.forecast(panel(), h=2, freq="MS", level=[80])
    assert isinstance(found, pl.DataFrame)
    for name in ("TimeGPT", "TimeGPT-lo-80", "TimeGPT-hi-80"):
        assert found[name].to_list() == expected[name].tolist()


def test_add_history_returns_fitted_values(client: Any) -> None:
    found = client.forecast(panel(), h=1, freq="MS", level=[80], add_history=True)
    second = found[found.unique_id == "b"]
    # 100 rows, of which the first 24 are read and whole years follow.
    assert second.ds.tolist() == [*MONTHS[-72:], pd.Timestamp("1961-01-01")]
    years = [VALUES[-13 - 12 * year] * 2 for year in reversed(range(6))]
    assert second.TimeGPT.tolist() == [*np.repeat(years, 12), 864]


def test_cross_validation(client: Any, ask: Ask) -> None:
    found = client.cross_validation(panel(), h=3, n_windows=4, step_size=2, level=[80], freq="MS")
    assert found.unique_id.value_counts().to_dict() == {"a": 12, "b": 12, "c": 12}
    cutoffs = MONTHS[[-10, -8, -6, -4]]
    assert found.cutoff.tolist() == [*np.repeat(cutoffs, 3)] * 3
    assert (
        found.ds.tolist() == [MONTHS[at + step] for at in (-9, -7, -5, -3) for step in range(3)] * 3
    )
    last = found[(found.unique_id == "b") & (found.cutoff == cutoffs[-1])]
    assert last.y.tolist() == (VALUES[-3:] * 2).tolist()
    known = {"series": (VALUES[:-3] * 2).tolist()}
    expected = ask("air", known, horizon=3, quantiles=[0.1, 0.9])
    assert last.TimeGPT.tolist() == expected["mean_forecast"]
    assert last["TimeGPT-lo-80"].tolist() == expected["quantiles"]["0.1"]
    assert last["TimeGPT-hi-80"].tolist() == expected["quantiles"]["0.9"]


def test_large_bodies_are_compressed(client: Any) -> None:
    rng = np.random.default_rng(0)
    hours = pd.date_range("2000-01-01", periods=120_000, freq="h")
    frame = pd.DataFrame({"unique_id": "a", "ds": hours, "y": rng.normal(size=len(hours))})
    values = frame.y.to_numpy(np.float32)
    assert len(orjson.dumps(values, option=orjson.OPT_SERIALIZE_NUMPY)) > 2**20
    found = client.forecast(frame, h=1, freq="h", model="hourly", add_history=True)
    # The largest number of origins of a request (max_origins), and the forecast.
    assert len(found) == 1024 * 4 + 1
    assert found.ds.iloc[-1] == hours[-1] + pd.Timedelta("1h")


def test_calendar_features_follow_the_start(client: Any, ask: Ask) -> None:
    days = pd.date_range("2024-02-20", periods=8, freq="D")
    frame = pd.DataFrame({"ds": days, "y": np.arange(8.0)})
    found = client.forecast(frame, h=4, freq="D")
    expected = ask("daily", {"series": [*range(8)], "start_timestamp": "2024-02-20"})
    assert found.TimeGPT.tolist() == expected["mean_forecast"]
    local = frame.assign(ds=days.tz_localize("Europe/Berlin"))
    status, text = refusal(lambda: client.forecast(local, h=4, freq="D"))
    assert (status, text) == (
        422,
        "series.start_datetime[0]: required: daily uses calendar features",
    )


def test_gaps(client: Any) -> None:
    values = VALUES.copy()
    values[-5] = np.nan
    frame = passengers().assign(value=values)
    for missing in ("ffill", "interpolate"):
        given = {"missing": missing}
        assert client.forecast(frame, h=1, model_parameters=given, **COLUMNS).TimeGPT[0] == 432
        found = client.cross_validation(frame, h=1, n_windows=5, model_parameters=given, **COLUMNS)
        assert found.TimeGPT.tolist()[0] == VALUES[-6]
        assert np.isnan(found.value[0])


@pytest.mark.parametrize(
    ("options", "status", "text"),
    [
        ({"h": 49}, 422, "h: expected at most 48 steps"),
        ({"model": "nobody"}, 404, "model: no model 'nobody'"),
        ({"finetune_steps": 5}, 422, "finetune_steps: nothing is trained here"),
        ({"date_features": ["month"]}, 422, "series.X: air reads no covariates; send only"),
        ({"model_parameters": {"size": 1}}, 422, "model_parameters.size: "),
    ],
)
def test_client_raises_refusals(
    client: Any, options: dict[str, Any], status: int, text: str
) -> None:
    got = refusal(lambda: client.forecast(passengers(), **{"h": 1, **COLUMNS, **options}))
    assert got[0] == status
    assert got[1].startswith(text)


def test_too_many_series_name_num_partitions(client: Any) -> None:
    frame = panel().tail(24)
    many = pd.concat([frame.assign(unique_id=str(number)) for number in range(5)])
    status, text = refusal(lambda: client.forecast(many, h=1, freq="MS"))
    assert status == 422
    assert text.endswith("got 5; pass num_partitions")
    assert len(client.forecast(many, h=1, freq="MS", num_partitions=2)) == 5


@pytest.mark.filterwarnings("ignore:detect_anomalies")
def test_other_methods_are_not_found(client: Any) -> None:
    for call in (
        lambda: client.finetune(panel(), freq="MS"),
        lambda: client.jobs.forecast(panel(), h=1, freq="MS"),
        lambda: client.detect_anomalies_online(panel(), freq="MS", h=1, detection_size=1),
        client.finetuned_models,
    ):
        status, text = refusal(call)
        assert (status, text[:9]) == (404, "Not Found")


def test_programs_of_the_page_run(
    server: Server, client: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    passengers().to_csv(tmp_path / "air_passengers.csv", index=False)
    monkeypatch.chdir(tmp_path)
    program = "".join(block.text for block in blocks(PAGE) if block.language == "python")
    program = program.replace("http://localhost:8000", server.url).replace('"any"', '"key"')
    found: dict[str, Any] = {}
    exec(program, found)
    columns = ["timestamp", "TimeGPT"]
    names = [f"TimeGPT-{side}-{level}" for side in ("hi", "lo") for level in (80, 90)]
    assert found["forecast"].columns.tolist() == [*columns, *names]
    assert len(found["known"]) == 36
