"""The protocol of the nixtla client, with requests that it never sends."""

from __future__ import annotations

import json
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from foretell.service.errors import error_body
from foretell.service.nixtla.codec import CrossValidationCodec, ForecastCodec
from tests.service.client import Client, request_of
from tests.service.nixtla.conftest import AIR, HOURLY
from tests.support.bundles import Spec, write_bundle

FORECAST = "forecast"
Y = [value / 4 for value in range(24)]
LAST = Y[-1]


@pytest.fixture(scope="module")
def client(repository: Path) -> Iterator[Client]:
    with Client(repository, max_origins=64) as client:
        yield client


def body(y: list[Any] | None = None, **changes: Any) -> dict[str, Any]:
    y = Y if y is None else y
    series = {"y": y, "sizes": [len(y)], "X": None, "X_future": None, **changes.pop("series", {})}
    return {"series": series, "model": "timegpt-2.1", "h": 2, "freq": "MS", **changes}


def post(client: Client, request: Any, task: str = FORECAST) -> httpx.Response:
    return client.request("POST", f"/nixtla/v2/{task}", json=request)


def answer(client: Client, request: Any, task: str = FORECAST) -> dict[str, Any]:
    found = post(client, request, task)
    assert found.status_code == 200, found.text
    content: dict[str, Any] = found.json()
    return content


def refusal(client: Client, request: Any, task: str = FORECAST) -> str:
    found = post(client, request, task)
    assert found.status_code == 422, found.text
    (text,) = found.json().values()
    return str(text)


@pytest.mark.parametrize("kind", [ForecastCodec, CrossValidationCodec])
def test_request_is_freed_before_the_forecast(
    client: Client, kind: type[ForecastCodec | CrossValidationCodec]
) -> None:
    sent = json.dumps(body(Y * 4, n_windows=2)).encode()
    codec = kind(client.settings)
    parsed = codec.parse(sent, request_of())
    request = weakref.ref(parsed.content)  # type: ignore[arg-type]
    decoded = codec.decode(parsed, parsed.find(client.repository.registry))
    assert decoded.windows
    assert request() is None


@pytest.mark.parametrize("encoding", ["gzip", "zstd"])
@pytest.mark.parametrize(("count", "compressed"), [(1, False), (200, True)])
def test_answers_of_a_kibibyte_are_compressed(
    client: Client, encoding: str, count: int, compressed: bool
) -> None:
    request = body(Y * count, series={"sizes": [len(Y)] * count})
    headers = {"Accept-Encoding": encoding}
    found = client.request("POST", f"/nixtla/v2/{FORECAST}", json=request, headers=headers)
    assert (found.headers.get("content-encoding") == encoding) == compressed
    assert len(found.json()["mean"]) == 2 * count


def test_answer_has_the_fields_that_the_client_reads(client: Client) -> None:
    found = answer(client, body())
    assert found.pop("model_digest").startswith("sha256:")
    assert found == {
        "mean": [LAST, LAST],
        "intervals": None,
        "weights_x": None,
        "feature_contributions": None,
    }
    found = answer(client, body(level=[80, 80, 0]))
    assert list(found["intervals"]) == ["lo-80", "hi-80", "lo-0", "hi-0"]
    assert found["intervals"]["lo-0"] == found["intervals"]["hi-0"] == found["mean"]
    assert answer(client, body(level=[]))["intervals"] is None
    assert all(answer(client, body(freq=freq))["mean"] == [LAST, LAST] for freq in ("1MS", "M"))


def test_model_parameters_of_a_model(client: Client) -> None:
    for query, spec in (("timegpt-1&freq=MS", AIR), ("hourly@1&freq=1h", HOURLY)):
        found = client.get(f"/nixtla/model_params?model={query}")
        assert found.json() == {"detail": {"input_size": spec.context, "horizon": spec.horizon}}


@pytest.mark.parametrize(
    ("query", "status", "text"),
    [
        ("model=air&freq=D", 422, "freq: expected the frequency of air, MS, got D"),
        ("model=air&freq=x", 422, "freq: expected a frequency such as"),
        ("model=air", 422, "freq: expected a frequency such as"),
        ("freq=MS", 404, "model: no model ''"),
        ("model=timegpt&freq=Q", 422, "freq: no served model forecasts one value"),
        ("model=timegpt&freq=W", 422, "freq: no served model forecasts one value"),
        ("model=air@7&freq=MS", 404, "model: air has no version '7'"),
    ],
)
def test_parameters_of_no_model(client: Client, query: str, status: int, text: str) -> None:
    found = client.get(f"/nixtla/model_params?{query}")
    assert found.status_code == status
    assert found.json()["detail"].startswith(text)


@pytest.mark.parametrize(("frequency", "freq"), [("15min", "15m"), ("QS", "1q"), ("YS", "y")])
def test_frequencies_of_polars(tmp_path: Path, frequency: str, freq: str) -> None:
    write_bundle(tmp_path, Spec(frequency=frequency))
    with Client(tmp_path) as client:
        assert answer(client, body(freq=freq))["mean"] == [LAST, LAST]
        # The only served model, of any frequency.
        text = refusal(client, body(freq="s"))
    assert text == f"freq: expected the frequency of repeat, {frequency}, got s"


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"series": {"sizes": [20, 3]}}, "series.y: expected 23 values, the sum of series.sizes"),
        ({"series": {"sizes": [2**53, 2**53, 24]}}, "series.y: expected 18014398509482008 "),
        ({"series": {"sizes": [2**63, 24]}}, "series.sizes[0]: expected at most 9007199254740992"),
        ({"series": {"sizes": []}}, "series.sizes: expected a list of at least 1"),
        ({"series": {"sizes": [0]}}, "series.sizes[0]: expected at least 1, got 0"),
        ({"series": {"sizes": [24.5]}}, "series.sizes[0]: "),
        ({"series": {"start_datetime": []}}, "series.start_datetime: expected 1 times"),
        ({"series": {"start_datetime": ["soon"]}}, "series.start_datetime[0]: "),
        ({"series": {"start_datetime": ["2024-01-02"]}}, "series.start_datetime[0]: no step of"),
        ({"series": {"y": "1"}}, "series.y: expected a list"),
        ({"series": {"y": [[1, 2]] * 24}}, "series[0].y[0]: "),
        (
            {"series": {"y": [*Y[:23], None]}},
            "series[0].y[23]: a value is missing (null), and model_parameters.missing is 'error'",
        ),
        (
            {"y": Y[:20]},
            "series[0].y: expected at least 24 rows, the model's context, got 20",
        ),
        *(
            ({"series": {name: [[1]]}}, "series.X: air reads no covariates; send only the id")
            for name in ("X", "X_future", "categorical_exog")
        ),
        ({"series": None}, "series: "),
        ({"h": True}, "h: expected a whole number, got true"),
        ({"level": [100]}, "level[0]: expected at most 99.999999, got 100"),
        ({"level": [99.99999999999999]}, "level[0]: expected at most 99.999999, got "),
        ({"level": [99.9999999]}, "level[0]: expected at most 99.999999, got "),
        ({"level": [-1]}, "level[0]: expected at least 0.0, got -1"),
        ({"level": [99]}, "level, as quantiles: expected a level between 0.01 and 0.99"),
        ({"level": [5] * 50}, "level: expected a list of at most 49"),
        ({"freq": None}, "freq: expected a string, got null"),
        ({"freq": "month\n"}, "freq: expected a frequency such as"),
        ({"freq": "h"}, "model: 'timegpt-2.1' may mean any of hourly, other; pass model="),
        ({"model": "hourly"}, "freq: expected the frequency of hourly, h, got MS"),
        ({"model": "multi"}, "model: multi reads 2 values at every time"),
        (
            {"model": "daily", "freq": "D"},
            "series.start_datetime[0]: required: daily uses calendar",
        ),
        ({"model": 7}, "model: expected a string, got 7"),
        ({"finetuned_model_id": "mine"}, "finetuned_model_id: nothing is trained here"),
        ({"multivariate": True}, "multivariate: series are forecast each by itself"),
    ],
)
def test_error_names_the_place(client: Client, changes: dict[str, Any], text: str) -> None:
    request = body(**changes) if changes.get("series", 1) else {**body(), **changes}
    assert refusal(client, request).startswith(text)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        (
            {"full_history": True},
            "series[0].y: expected at least 25 rows (24 to read and 1 that follow)",
        ),
        (
            {"level": [80], "model_parameters": {"calibration": "history"}},
            "model_parameters.calibration: only forecasts are corrected by the history",
        ),
        ({"step_size": 2**64 - 1}, "step_size: expected at most 9007199254740992, got "),
        ({"n_windows": 65}, "n_windows: 1 inputs leave room for 64 origins of each, got 65"),
        *(
            (
                {"y": [1.0] * before + [None] * count + [1.0] * after, "full_history": True}
                | {"model_parameters": {"missing": "ffill"}},
                "series[0].y: 24 rows, the model's context, are missing in a row",
            )
            for before, count, after in ((40, 40, 40), (80, 38, 2))
        ),
    ],
)
def test_cross_validations_that_are_refused(
    client: Client, changes: dict[str, Any], text: str
) -> None:
    assert refusal(client, body(**changes), "cross_validation").startswith(text)


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b"null", b" " * 70_000])
def test_invalid_body_is_refused(client: Client, content: bytes) -> None:
    found = client.request("POST", "/nixtla/v2/forecast", content=content)
    assert found.status_code in (400, 422)
    assert isinstance(found.json()["detail"], str)


def test_other_media_types_methods_and_paths_are_refused(client: Client) -> None:
    headers = {"content-type": "application/vnd.apache.arrow.stream"}
    found = client.request("POST", "/nixtla/v2/forecast", content=b"", headers=headers)
    assert (found.status_code, found.headers["accept"]) == (415, "application/json")
    for path, status in (("/nixtla/v2/forecast", 405), ("/nixtla/usage", 404)):
        found = client.get(path)
        assert (found.status_code, list(found.json())) == (status, ["detail"])


def test_only_nixtla_paths_have_its_errors() -> None:
    error = {"message": "no", "param": "h"}
    assert error_body("/nixtla", error) == error_body("/nixtla/x", error) == {"detail": "h: no"}
    assert error_body("/nixtlas", error) == {"error": error}


def test_answer_has_warnings_and_metrics_count_it(client: Client) -> None:
    found = answer(client, body(h=13, new_option=1, clean_ex_first=False))
    kinds = [(each["type"], each["param"]) for each in found["warnings"]]
    assert kinds == [("ignored_field", "new_option"), ("rolled", "h")]
    found = answer(client, body([1e6] * 24, model="air"))
    assert found["warnings"][0]["param"] == "series[0].y"
    assert "warnings" not in answer(client, body())
    text = client.get("/metrics").text
    assert 'route="/nixtla/v2/forecast"' in text
    assert 'foretell_batch_windows_count{model="air",version="1"}' in text


class Doubled(Spec):
    """A model that repeats its last row, times 2."""

    scale = np.array([2], np.float32)


@pytest.mark.parametrize("task", ["forecast", "cross_validation"])
def test_nonfinite_forecast_is_an_error(tmp_path: Path, task: str) -> None:
    write_bundle(tmp_path, Doubled(name="twice", frequency="MS"))
    with Client(tmp_path) as client:
        request = body([*[1.0] * 12, *[3e38] * 12], h=4)
        request["series"]["sizes"] = [12, 12]
        assert refusal(client, request, task).startswith("series[1].y: the model's forecast of ")


def test_full_history_of_short_series(client: Client) -> None:
    request = body([*Y, 5.0, 6.0, 7.0], full_history=True, n_windows=9, h=1, step_size=1)
    found = answer(client, request, "cross_validation")
    assert (found["mean"], found["idxs"], found["sizes"]) == ([LAST] * 3, [24, 25, 26], [3])


def test_steps_beyond_all_rows(client: Client) -> None:
    values = [float(value % 7) for value in range(40)]
    found = answer(client, body(values, step_size=2**53, h=1), "cross_validation")
    assert found["idxs"] == [39]


def test_windows_beyond_the_limit_are_left_out(client: Client) -> None:
    found = answer(client, body([0.0] * 1000, full_history=True), "cross_validation")
    assert found["sizes"] == [64 * 12]
    assert found["warnings"][-1]["type"] == "origins_left_out"
    assert found["idxs"] == [*range(1000 - 64 * 12, 1000)]


def test_a_gap_before_the_history_is_left_out(client: Client) -> None:
    values: list[Any] = [*[None] * 30, *[1.0] * 90]
    request = body(values, model_parameters={"missing": "ffill"}, full_history=True)
    found = answer(client, request, "cross_validation")
    assert found["idxs"] == [*range(60, 120)]


def test_limits_are_in_the_terms_of_the_client(client: Client) -> None:
    request = body([0.0] * 65 * 25)
    request["series"]["sizes"] = [25] * 65
    text = refusal(client, request | {"full_history": True}, "cross_validation")
    assert text.startswith("series.sizes: 65 inputs leave room for 0 origins of each, got 1")
    given = {"level": [80], "model_parameters": {"calibration": "history"}}
    text = refusal(client, {**request, **given})
    assert text.startswith("model_parameters.calibration: 65 inputs leave room for 0 origins")
    assert text.endswith("send fewer inputs, or ask for fewer steps or quantiles")
