"""Both clients against a real server."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from pydantic import TypeAdapter

from foretell import AsyncClient, Client
from foretell.client import (
    ConnectionFailedError,
    ForetellWarning,
    InvalidInputError,
    NotFoundError,
    PartialForecastError,
    ServerError,
    UnauthorizedError,
)
from tests.support.process import Server, free_port

HOURS = pd.date_range("2024-03-01", periods=8, freq="h")


def long(*names: object, rows: int = 8, **columns: Any) -> pd.DataFrame:
    """Series that rise by 1/8 in each row, and begin at 0, 1, …, 7, 0, …"""
    return pd.concat(
        pd.DataFrame(
            {"unique_id": name, "ds": HOURS[:rows], "load": at % 8 + np.arange(rows) / 8, **columns}
        )
        for at, name in enumerate(names)
    )


def test_numbers_equal_those_of_json(client: Client, server: Server) -> None:
    history = np.random.default_rng(0).normal(3, 2, 8)
    body = {"model": "load", "inputs": [{"series": history.tolist()}]}
    answer = httpx.post(
        f"{server.url}/forecast",
        json=body | {"options": {"quantiles": [0.1]}},
        headers={"X-API-Key": "sesame"},
    )
    (content,) = answer.json()["outputs"][0]["content"]
    frame = pd.DataFrame({"load": history})
    found = client.forecast(frame, model="load", quantiles=np.array([0.1]))
    assert list(found) == ["load", "load_q0.1"]
    # JSON has the shortest text that is read as the same float32.
    np.testing.assert_array_equal(np.float32(content["mean_forecast"]), found["load"])
    np.testing.assert_array_equal(np.float32(content["quantiles"]["0.1"]), found["load_q0.1"])
    np.testing.assert_array_equal(found["load"], np.float32(history[-1]))


def test_more_than_a_thousand_series_in_one_call(client: Client) -> None:
    frame = long(*range(1100))
    found = client.forecast(frame.sort_values("ds", kind="stable"), model="load", horizon=2)
    # The frame exceeds the limit of bytes: the client halves it until every part fits.
    assert found["unique_id"].tolist() == np.repeat(range(1100), 2).tolist()
    assert found["load"].tolist() == np.repeat(7 / 8 + np.arange(1100) % 8, 2).tolist()
    assert found["ds"].tolist() == [*(HOURS[-1] + pd.to_timedelta([1, 2], "h"))] * 1100


def test_a_hundred_calls_at_a_time(server: Server) -> None:
    frames = [pl.DataFrame({"load": np.arange(8.0) - at / 64}) for at in range(100)]

    async def ask() -> list[pl.DataFrame]:
        async with AsyncClient(server.url, key="sesame") as client:
            return await asyncio.gather(*(client.forecast(each, model="load") for each in frames))

    assert [frame["load"].to_list() for frame in asyncio.run(ask())] == [
        [7.0 - at / 64] * 4 for at in range(100)
    ]


def test_series_that_fail_are_named(client: Client) -> None:
    frame = pd.concat([long("a"), long("b", rows=3), long("c")], ignore_index=True)
    with pytest.raises(
        PartialForecastError, match=r"^unique_id\[8\]: series 'b' .* at least 8 rows"
    ):
        client.forecast(frame, model="load")
    answer = client.forecast_with_notes(frame, model="load")
    assert answer.frame["unique_id"].unique().tolist() == ["a", "c"]
    (error,) = answer.notes.errors
    assert (error.series, error.place, error.kind) == ("b", "unique_id[8]", "invalid_input")
    assert (answer.notes.model, answer.notes.model_version) == ("load", "1")


def test_errors_have_rows_of_the_callers_frame(client: Client) -> None:
    """Places are rows of the frame, not of the parts that the client sends."""
    frame = long(*range(600)).rename(columns={"unique_id": "sku", "ds": "at"})
    frame = frame.sort_values("at", kind="stable", ignore_index=True)
    frame.loc[3500, "load"] = np.nan
    found = client.forecast_with_notes(frame, model="load", id_column="sku", time_column="at")
    (error,) = found.notes.errors
    assert error.place == "load[3500]"
    assert error.series == frame["sku"][3500]
    assert len(found.frame) == 599 * 4


def test_warnings_have_the_line_of_the_caller(client: Client) -> None:
    frame = long("a", note=1)
    with pytest.warns(ForetellWarning, match="columns that are not read: note") as warned:
        client.forecast(frame, model="load")
    assert warned[0].filename == __file__
    assert [
        warning.kind for warning in client.forecast_with_notes(frame, model="load").notes.warnings
    ]


def test_missing_values_and_a_longer_horizon(client: Client) -> None:
    frame = long("a").astype({"load": float})
    frame.loc[3, "load"] = None
    answer = client.forecast_with_notes(frame, model="load", horizon=6, missing="interpolate")
    assert len(answer.frame) == 6
    assert answer.notes.rolled_from == 4
    assert answer.notes.filled == {"a": {"load": 1}}


def test_models(client: Client) -> None:
    cards = {card.name: card for card in client.models()}
    assert set(cards) == {"load", "two", "monthly"}
    assert cards["two"].channels == cards["two"].targets == ("load", "wind")
    assert cards["load"].max_horizon == 16
    report = client.model("monthly@1")
    assert (report.frequency, report.needs_timestamps) == ("MS", True)
    assert report.parameters is not None
    with pytest.raises(NotFoundError, match="did you mean 'load'"):
        client.model("laod")
    with pytest.raises(NotFoundError):
        client.model("../metrics")


@pytest.mark.parametrize(
    ("frame", "options", "message"),
    [
        (long("a"), {}, "^model: required"),
        (long("a"), {"model": "load", "horizon": 17}, "^horizon: expected at most 16"),
        (long("a"), {"model": "load", "quantiles": [2]}, r"^quantiles.*\[0\]"),
        (long("a"), {"model": "two"}, "^wind: expected one column"),
        (long("a", rows=3), {"model": "load"}, r"^unique_id\[0\]: expected at least 8"),
        (long("a")[["load"]].head(3), {"model": "load"}, "^expected at least 8 rows"),
        (
            long("a").astype({"ds": str}).rename(columns={"ds": "date"}),
            {"model": "load"},
            r"^date: .*pd.to_datetime\(df\['date'\]\)",
        ),
        (
            long("a", "b").rename(columns={"unique_id": "sku", "ds": "at"})[["at", "load"]],
            {"model": "load"},
            r"^at\[8\]: expected 2024-03-01T08:00:00 .*; if these are several series, id_column=",
        ),
    ],
)
def test_input_that_does_not_fit_is_refused(
    client: Client, frame: pd.DataFrame, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidInputError, match=message):
        client.forecast(frame, **options)


@pytest.mark.parametrize(
    ("key", "message"), [("", "set FORETELL_KEY"), ("wrong", r"not one of this server's$")]
)
def test_wrong_keys_are_refused(server: Server, key: str, message: str) -> None:
    frame = pa.table({"load": np.arange(8.0)})
    with Client(server.url, key=key) as client, pytest.raises(UnauthorizedError, match=message):
        client.forecast(frame, model="load")


def test_unreachable_server_is_an_error() -> None:
    url = f"localhost:{free_port()}"
    with Client(url, retry_for=0) as client, pytest.raises(ConnectionFailedError, match=url):
        client.models()


def test_async_client_returns_the_same(server: Server, client: Client) -> None:
    frame = pd.DataFrame(
        {"load": np.sin(np.arange(20))}, pd.date_range("2024", periods=20, freq="h")
    )

    async def ask() -> tuple[Any, ...]:
        async with AsyncClient(server.url, key="sesame") as other:
            return await asyncio.gather(
                other.forecast(frame, model="load", horizon=1),
                other.backtest(frame, model="load"),
                other.explain(frame, model="load", stages=["encoder.0.self"], heads=[0]),
                other.models(),
                other.model("two"),
            )

    forecast, backtest, explanation, cards, report = asyncio.run(ask())
    pd.testing.assert_frame_equal(forecast, client.forecast(frame, model="load", horizon=1))
    pd.testing.assert_frame_equal(backtest.frame, client.backtest(frame, model="load").frame)
    assert explanation.values.shape == (4, 1)
    assert (cards, report) == (client.models(), client.model("two"))


def test_months(client: Client) -> None:
    months = pd.period_range("2023-06", periods=8, freq="M", name="month")
    found = client.forecast(pd.DataFrame({"load": np.zeros(8)}, months), model="monthly")
    assert found.index.equals(pd.period_range("2024-02", periods=4, freq="M", name="month"))


def faltering() -> httpx.MockTransport:
    """A server that cannot be reached at first, then is busy, and then answers."""
    answers = [
        httpx.ConnectError("refused"),
        httpx.Response(503, headers={"Retry-After": "0"}),
        httpx.Response(200, json=[]),
    ]

    def answer(request: httpx.Request) -> httpx.Response:
        found = answers.pop(0)
        if isinstance(found, httpx.Response):
            return found
        raise found

    return httpx.MockTransport(answer)


def test_failed_request_is_retried(monkeypatch: pytest.MonkeyPatch) -> None:
    with Client("server", transport=faltering()) as client:
        assert client.models() == []

    async def ask() -> list[Any]:
        async with AsyncClient("server") as client:
            http = httpx.AsyncClient(transport=faltering(), base_url="http://a")
            monkeypatch.setattr(client, "_http", http)
            return await client.models()

    assert asyncio.run(ask()) == []


@pytest.mark.parametrize("content", [b"", b"[]", b"\xff" * 64, b"{" * 100])
def test_answer_of_another_form_is_an_error(content: bytes) -> None:
    transport = httpx.MockTransport(lambda _: httpx.Response(200, content=content))
    with (
        Client("a", transport=transport) as client,
        pytest.raises(ServerError, match="http://a/forecast: not an answer of foretell: "),
    ):
        client.forecast(long("a"))


def test_low_level_request(client: Client) -> None:
    body = {"model": "load", "inputs": [{"series": [*range(8)]}], "options": {"horizon": 1}}
    answer = client.request("forecast", body, TypeAdapter(dict[str, Any]))
    assert answer["outputs"][0]["content"][0]["mean_forecast"] == [7]
    with pytest.raises(ServerError, match="not an answer of foretell: "):
        client.request("forecast", body, TypeAdapter(list[int]))
    with pytest.raises(InvalidInputError, match="horizon"):
        client.request("forecast", {**body, "options": {"horizon": 99}}, TypeAdapter(Any))
