"""Jobs: made from a request, run in one or more passes, and encoded as an answer."""

from __future__ import annotations

import asyncio
import json
import time
import weakref
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from foretell.bundle.manifest import Manifest
from foretell.service.arrays import Arrays
from foretell.service.errors import DeadlineExceededError, InvalidInputError, ServiceError
from foretell.service.forecast.answers import ForecastResponse
from foretell.service.forecast.backtest import BACKTESTING
from foretell.service.forecast.encode import encode as encode_with_headers
from foretell.service.forecast.encode import encoding_work
from foretell.service.forecast.job import Job, decode
from foretell.service.forecast.options import FORECASTING, Options
from foretell.service.forecast.parse import JsonCodec, parse
from foretell.service.forecast.routes import BacktestCodec
from foretell.service.forecast.series import Series
from foretell.service.http.body import ALWAYS
from tests.service.client import Client, request_of
from tests.service.conftest import CALENDAR
from tests.service.forecast.bodies import EIGHT, PAIRS, body
from tests.service.forecast.shops import SHOP, shop
from tests.service.kserve import kserve_types
from tests.support.bundles import Spec, write_bundle


def job(client: Client, *inputs: dict[str, Any], model: str = "repeat", **rest: Any) -> Job:
    body = {"model": model, "inputs": list(inputs), **rest}
    envelope, ignored = parse(json.dumps(body).encode())
    model = client.repository.registry.find(envelope.model)
    return decode(envelope, ignored, model, client.settings)


def test_request_is_freed_before_the_forecast(client: Client) -> None:
    body = json.dumps({"model": "repeat", "inputs": [{"series": EIGHT}]}).encode()
    codec = JsonCodec(FORECASTING, client.settings)
    parsed = codec.parse(body, request_of())
    envelope = weakref.ref(parsed.content[0])  # type: ignore[index]
    decoded = codec.decode(parsed, parsed.find(client.repository.registry))
    assert len(decoded.history) == 1
    assert envelope() is None


def only(decoded: Job) -> Series:
    (entry,) = decoded.entries
    assert isinstance(entry, Series)
    return entry


def test_minimal_request_has_defaults(client: Client) -> None:
    decoded = job(client, {"series": EIGHT})
    assert only(decoded) == Series("series-0", 0, True, None, None, {})
    assert decoded.options == Options(4, 1, "error", (), None, ledger=True)
    assert decoded.calendar is None
    np.testing.assert_array_equal(decoded.history, np.array(EIGHT)[None, :, None])
    assert decoded.history.dtype == np.float32


def test_longer_history_is_cut_to_its_tail(client: Client) -> None:
    series = {"series": [9.0, *EIGHT], "start_timestamp": "2024-02-28T23:00:00"}
    decoded = job(client, series, model="calendar")
    np.testing.assert_array_equal(decoded.history[0, :, 0], EIGHT)
    timeline = only(decoded).timeline
    assert timeline is not None
    assert timeline.labels(0, 4) == [f"2024-02-29T{hour:02}:00:00" for hour in range(8, 12)]
    assert CALENDAR.calendar is not None
    hours = np.datetime64("2024-02-29T00", "h") + np.arange(12)
    np.testing.assert_array_equal(decoded.calendar[0], CALENDAR.calendar.encode(hours))


@pytest.mark.parametrize(("horizon", "passes"), [(1, 1), (4, 1), (5, 2), (8, 2), (9, 3), (16, 4)])
def test_the_calendar_reaches_to_the_end_of_the_last_pass(
    client: Client, horizon: int, passes: int
) -> None:
    decoded = job(
        client,
        {"series": EIGHT, "start_timestamp": "2024-01-01"},
        model="calendar",
        options={"horizon": horizon},
    )
    assert decoded.options.passes == passes
    assert decoded.calendar is not None
    assert decoded.calendar.shape == (1, 8 + 4 * passes, 4)


def test_invalid_inputs_have_no_window(client: Client) -> None:
    decoded = job(client, {"series": [1]}, {"series": EIGHT}, {"series": "x"}, {"series": EIGHT})
    assert [isinstance(entry, Series) for entry in decoded.entries] == [False, True, False, True]
    assert len(decoded.history) == 2
    assert [entry.row for entry in decoded.entries if isinstance(entry, Series)] == [0, 1]


def test_channels_in_any_order(client: Client) -> None:
    entry = {"series": PAIRS, "channels": ["wind", "load"]}
    decoded = job(client, entry, model="multi", options={"horizon": 1})
    np.testing.assert_array_equal(decoded.history[0], np.array(PAIRS)[:, ::-1])
    assert only(decoded).columns == [1, 0]
    assert only(job(client, entry | {"channels": ["load", "wind"]}, model="multi")).columns is None
    values = np.array([[[1, 2], [3, 4], [5, 6], [7, 8]]], np.float32)
    content = json.loads(encode(decoded, {"forecast": values}))["outputs"][0]["content"][0]
    assert content["channels"] == ["wind", "load"]
    assert content["mean_forecast"] == [[2.0, 1.0]]


def test_filled_values_are_counted_by_channel(client: Client) -> None:
    rows = [[None, 1.0], *PAIRS[1:7], [7.0, None], [8.0, 8.0]]
    entry = {"series": rows, "channels": ["wind", "load"]}
    decoded = job(client, entry, model="multi", options={"missing": "interpolate"})
    assert only(decoded).filled == {"load": 1}
    assert decoded.history[0, -2].tolist() == [2.0, 7.0]
    with pytest.raises(ServiceError) as error:
        job(client, entry, model="multi")
    assert error.value.param == "inputs[0].series[0][0]"


@pytest.mark.parametrize("field", ["start_timestamp", "timestamps"])
def test_times_outside_years_1_to_9999_are_refused(client: Client, field: str) -> None:
    hours = [f"0001-01-01T{hour:02}:00Z" for hour in range(8)]
    times = {field: hours[0] if field == "start_timestamp" else hours}
    with pytest.raises(ServiceError, match="years 1 to 9999") as error:
        job(client, {"series": EIGHT, "time_zone": "America/New_York", **times})
    assert error.value.param == f"inputs[0].{field}"


def encode(request: Job, found: dict[str, np.ndarray[Any, Any]]) -> bytes:
    body, headers = encode_with_headers(request, found)
    assert headers == {"content-type": "application/json"}
    return body


def outputs(*windows: list[float]) -> dict[str, np.ndarray[Any, Any]]:
    return {"forecast": np.array(windows, np.float32)[:, :, None]}


def test_numbers_are_the_shortest_of_their_float32(client: Client) -> None:
    answer = encode(job(client, {"series": EIGHT}), outputs([0.1, 1 / 3, 1e-20, 16777216]))
    assert b'"mean_forecast":[0.1,0.33333334,1e-20,16777216.0]' in answer


def test_the_answer(client: Client) -> None:
    request = job(client, {"name": "a", "series": EIGHT}, metadata={"k": [2**70]})
    answer = json.loads(encode(request, outputs([1, 2, 3, 4])))
    identifier = answer.pop("id")
    assert abs(answer.pop("created_at") - time.time()) < 60
    assert answer == {
        "status": "completed",
        "error": None,
        "model": "repeat",
        "model_version": "10",
        "model_digest": request.model.digest,
        "metadata": {"k": [2**70]},
        "outputs": [
            {
                "type": "time_series_forecast",
                "id": f"{identifier}-0",
                "status": "completed",
                "error": None,
                "content": [
                    {
                        "type": "univariate_time_series",
                        "name": "a",
                        "mean_forecast": [1.0, 2.0, 3.0, 4.0],
                        "frequency": "H",
                        "start_timestamp": "",
                    }
                ],
            }
        ],
    }


def test_a_forecast_that_is_not_finite_is_an_error_of_its_series(client: Client) -> None:
    request = job(client, {"series": EIGHT}, {"series": EIGHT})
    answer = json.loads(encode(request, outputs([1, 2, 3, np.nan], [1, 2, 3, 4])))
    assert answer["status"] == "partial"
    first, second = answer["outputs"]
    assert (first["status"], first["content"]) == ("error", [])
    assert first["error"]["param"] == "inputs[0].series"
    assert first["error"]["code"] == "422"
    assert second["status"] == "completed"
    with pytest.raises(InvalidInputError, match="not finite"):
        encode(job(client, {"series": EIGHT}), outputs([np.inf, 2, 3, 4]))


def test_work_of_an_answer_counts_values_and_attention(client: Client) -> None:
    inputs = [{"series": PAIRS}] * 2
    values = outputs([1, 2, 3, 4], [1, 2, 3, 4])
    least = 32 + 2 * (4096 + len("series-0"))
    assert encoding_work(job(client, *inputs, model="multi"), values) == least
    explained = job(client, *inputs, model="multi", options={"attention": True})
    assert encoding_work(explained, values) == least + 4 * 2 * (18 + 64 + 36)


def test_work_of_an_answer_counts_scenarios_and_importance(tmp_path: Path) -> None:
    write_bundle(tmp_path, SHOP)
    entry = shop()
    long = {"name": "n" * 500, "future_covariates": {"price": [1.0, None, 2.0, 3.0]}}
    options = {"missing": "interpolate", "quantiles": [0.5]}
    forecast = np.ones((3, 4, 2), np.float32)
    with Client(tmp_path) as client:
        plain = job(client, entry, model="shop", options=options)
        least = encoding_work(plain, {"forecast": forecast[:1]})
        entry["scenarios"] = [{}, {}, long]
        found = job(client, entry, model="shop", options=options)
        # Each writes a forecast, a quantile and a difference, and the first two of these twice.
        more = 2 * 4096 + (2 * 2 + 3 + 2) * 32 + 2 * len("scenario-0") + 500 + len("price") + 64
        assert encoding_work(found, {"forecast": forecast}) == least + more
        assert found.held - plain.held > 2 * 500
        moved = job(client, entry, model="shop", options={**options, "importance": True})
        assert moved.replaced is not None
        names = sum(map(len, ("sales", "returns", "price", "open", "sky", "region", "size")))
        work = encoding_work(moved, {"forecast": forecast})
        assert work == least + more + names + 7 * (64 + 2 * 2 * 4)


def test_times_with_varying_offsets_count_as_work(client: Client) -> None:
    work = []
    for zone in (None, "Europe/Berlin"):
        entry = {"series": EIGHT, "start_timestamp": "2024-01-01T00:00:00", "time_zone": zone}
        work.append(encoding_work(job(client, entry), outputs([1, 2, 3, 4])))
    assert work[1] == work[0] + 4 * 64


def test_a_backtest_is_never_written_on_the_event_loop(client: Client) -> None:
    body = {"model": "repeat", "inputs": [{"series": [*EIGHT, 1, 2, 3, 4]}]}
    codec = BacktestCodec(JsonCodec(BACKTESTING, client.settings))
    parsed = codec.parse(json.dumps(body).encode(), request_of())
    backtest = codec.decode(parsed, client.repository.registry.find("repeat"))
    assert codec.encoding_work(backtest, outputs([1, 2, 3, 4])) == ALWAYS


def test_answers_fit_the_document(client: Client) -> None:
    body = {
        "model": "multi",
        "inputs": [
            {"series": PAIRS, "start_timestamp": "2024-01-01", "channels": ["wind", "load"]},
            {"series": [1]},
        ],
        "options": {"attention": True},
        "metadata": {"a": 1},
    }
    answer = client.forecast(body).json()
    described = ForecastResponse.model_validate(answer).model_dump(exclude_unset=True)
    assert set(described) == set(answer)
    forecast, described_forecast = (
        parsed["outputs"][0]["content"][0] for parsed in (answer, described)
    )
    assert set(described_forecast) == set(forecast)
    for stage, expected in zip(forecast["attention"], described_forecast["attention"], strict=True):
        assert set(stage) == set(expected)


def test_every_field_of_the_standard_is_there() -> None:
    types = kserve_types()
    if types is None:
        pytest.skip("kserve is not installed (pip install --no-deps kserve==0.21.0)")
    optional = {"usage"}
    assert set(types.ForecastResponse.model_fields) - optional <= set(ForecastResponse.model_fields)


@pytest.mark.parametrize("margin", [0.5e-5, 2e-5])
def test_lags_that_rounding_may_decide_are_flagged(tmp_path: Path, margin: float) -> None:
    """The margin of this model is the oldest value that it reads."""
    write_bundle(tmp_path, Spec(margin_bound=1e-5))
    series = [1.0] * 8
    with Client(tmp_path) as client:
        for place, horizon in ((0, 4), (4, 4), (4, 5), (4, 12)):
            # The fifth value is the oldest one of the second pass.
            series = [margin if step == place else 1.0 for step in range(8)]
            request = {"inputs": [{"series": series}], "options": {"horizon": horizon}}
            flagged = margin < 1e-5 and (place == 0 or horizon > 4)
            assert client.first(request)["ill_conditioned"] is flagged


CONTEXT, HORIZON, CHANNELS, FEATURES = 5, 3, 2, 2
ADDING = Manifest.model_construct(name="m", horizon=HORIZON, context=CONTEXT)
RANDOM = np.random.default_rng(0)


class Model:
    """A model of sums: every value of its inputs changes every value of its forecast."""

    manifest = ADDING

    def __init__(self) -> None:
        self.submitted: list[dict[str, Any]] = []

    def submit(
        self,
        feeds: Arrays,
        *,
        attention: Sequence[str] = (),
        deadline: float,
        admitted: bool = False,
    ) -> Future[Arrays]:
        self.submitted.append({"attention": attention, "deadline": deadline, "admitted": admitted})
        assert all(rows.dtype == np.float32 for rows in feeds.values())
        assert all(rows.flags.c_contiguous for rows in feeds.values())
        history = feeds["history"]
        weights = np.linspace(0.1, 0.9, CONTEXT, dtype=np.float32)
        step = np.einsum("bcx,c->bx", history, weights)[:, None]
        calendar = np.zeros(1, np.float32)
        if "future_calendar" in feeds:
            past = feeds["history_calendar"].sum(axis=(1, 2))[:, None, None]
            calendar = feeds["future_calendar"].sum(axis=2, keepdims=True) + past
        outputs: Arrays = {
            "forecast": (np.repeat(step, HORIZON, axis=1) / 2 + calendar).astype(np.float32),
            "margin": history[:, -1, 0],
        }
        if attention:
            outputs["weights"] = history.sum(axis=1)
        future: Future[Arrays] = Future()
        future.set_result(outputs)
        return future


def job_of(model: Model, horizon: int, windows: int = 4, *, calendar: bool = True) -> Job:
    passes = -(-horizon // HORIZON)
    history = RANDOM.normal(size=(windows, CONTEXT, CHANNELS)).astype(np.float32)
    features = RANDOM.normal(size=(windows, CONTEXT + passes * HORIZON, FEATURES))
    return Job(
        model,  # type: ignore[arg-type]
        Options(horizon, passes, "error", (), None),
        [],
        history,
        features.astype(np.float32) if calendar else None,
        None,
    )


async def done(future: Future[Arrays]) -> Arrays:
    return future.result()


def outputs_of(rolled: Job) -> Arrays:
    return asyncio.run(rolled.run(7.0, done))


def by_hand(rolled: Job, model: Model, window: int) -> Arrays:
    """Forecasts of a caller that sends each forecast back as history, one window at a time."""
    history = rolled.history[window]
    margins: list[np.float32] = []
    for number in range(rolled.options.passes):
        feeds = {"history": history[None, -CONTEXT:]}
        if rolled.calendar is not None:
            calendar = rolled.calendar[window, number * HORIZON :][None]
            feeds["history_calendar"] = calendar[:, :CONTEXT]
            feeds["future_calendar"] = calendar[:, CONTEXT : CONTEXT + HORIZON]
        contiguous = {name: np.ascontiguousarray(rows) for name, rows in feeds.items()}
        found = model.submit(contiguous, deadline=0).result()
        margins.append(found["margin"][0])
        history = np.concatenate([history, found["forecast"][0]])
    return {"forecast": history[CONTEXT:], "margin": np.min(margins)}


@pytest.mark.parametrize("calendar", [True, False])
@pytest.mark.parametrize("horizon", [1, 3, 4, 6, 11])
def test_rolled_passes_equal_single_passes(horizon: int, calendar: bool) -> None:
    model = Model()
    rolled = job_of(model, horizon, calendar=calendar)
    outputs = outputs_of(rolled)
    assert outputs["forecast"].shape == (4, rolled.options.passes * HORIZON, CHANNELS)
    for window in range(4):
        expected = by_hand(rolled, model, window)
        np.testing.assert_array_equal(outputs["forecast"][window], expected["forecast"])
        assert outputs["margin"][window] == expected["margin"]


class Selected:
    outputs = ("weights",)


def test_only_the_first_pass_has_attention_and_waits_for_admission() -> None:
    model = Model()
    rolled = job_of(model, 8)
    explained = Options(8, 3, "error", (), attention=Selected())  # type: ignore[arg-type]
    outputs = outputs_of(
        Job(model, explained, [], rolled.history, rolled.calendar, None)  # type: ignore[arg-type]
    )
    np.testing.assert_array_equal(outputs["weights"], rolled.history.sum(axis=1))
    assert model.submitted == [
        {"attention": ("weights",), "deadline": 7.0, "admitted": False},
        {"attention": (), "deadline": 7.0, "admitted": True},
        {"attention": (), "deadline": 7.0, "admitted": True},
    ]


@pytest.mark.parametrize("overflowing", [[1], [0, 1, 2, 3]])
def test_nonfinite_forecast_is_not_rolled(overflowing: list[int]) -> None:
    model = Model()
    rolled = job_of(model, 7)
    rolled.history[overflowing] = 3e38
    with np.errstate(over="ignore"):
        outputs = outputs_of(rolled)
    assert not np.isfinite(outputs["forecast"][overflowing]).any()
    others = [window for window in range(4) if window not in overflowing]
    for window in others:
        expected = by_hand(rolled, model, window)["forecast"]
        np.testing.assert_array_equal(outputs["forecast"][window], expected)
    # A pass without a finite forecast is the last one.
    assert (len(model.submitted) == 1) == (not others)


def test_failed_wait_ends_the_passes() -> None:
    model = Model()
    passes = 0

    async def late(future: Future[Arrays]) -> Arrays:
        nonlocal passes
        passes += 1
        if passes == 2:
            raise DeadlineExceededError("too late")
        return future.result()

    with pytest.raises(DeadlineExceededError):
        asyncio.run(job_of(model, 12).run(7.0, late))
    assert len(model.submitted) == 2


@pytest.mark.parametrize("name", ["multi", "calendar", "monthly", "calibrated"])
def test_long_horizon_equals_repeated_requests(client: Client, name: str) -> None:
    model = client.repository.registry.find(name)
    own, channels = model.manifest.horizon, len(model.manifest.channels)
    values = np.random.default_rng(3).normal(size=(11, channels)).astype(np.float32)
    known = (values if channels > 1 else values[:, 0]).tolist()
    start = "2023-11-01T00:00:00+01:00"
    entry = {"series": known, "start_timestamp": start}
    rolled = client.first(body(entry, model=name, horizon=3 * own - 1))
    assert rolled["rolled_from"] == own
    times: list[str] = []
    for _ in range(3):
        step = client.first(body({"series": known, "start_timestamp": start}, model=name))
        assert "rolled_from" not in step
        known = known + step["mean_forecast"]
        times += step["timestamps"]
    assert rolled["mean_forecast"] == known[11:][: 3 * own - 1]
    assert rolled["timestamps"] == times[: 3 * own - 1]


def test_deadline_covers_all_passes(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("slow")
    write_bundle(folder, Spec(name="slow", burn=8))
    with Client(folder, max_horizon_multiple=100_000) as client:
        request = {"inputs": [{"series": EIGHT}], "options": {"horizon": 400_000}}
        answer = client.forecast(request, **{"X-Timeout-Ms": "150"})
        assert answer.status_code == 504
