"""Requests, an answer and errors for the OpenAPI document.

The demo's models (`foretell demo`) answer the requests as they are.
"""

from __future__ import annotations

import math
from itertools import chain
from typing import Any

import numpy as np
from pydantic import BaseModel

from foretell.service import errors

Example = dict[str, Any]

_HOURS = 168
_START = "1990-12-25T01:00:00"
_NAME = "greensboro"
_CHANNELS = (
    *("global_irradiance", "direct_irradiance", "temperature", "relative_humidity"),
    *("pressure", "wind_speed", "cloud_cover"),
)

# What the parameters of paths, and the options of tables, may be.
PARAMETERS: Example = {
    "model": "patchtst",
    "version": "1",
    "horizon": 48,
    "quantiles": "0.1,0.9",
    "missing": "interpolate",
    "calibration": "history",
    "stride": 24,
    "origins": 7,
}

# To the first request for forecasts.
FORECAST_ANSWER: Example = {
    "id": "forecast-b0ee4abbba2f4f4591e2f63790d8a476",
    "created_at": 1795212683,
    "status": "completed",
    "error": None,
    "model": "patchtst",
    "model_version": "1",
    "outputs": [
        {
            "type": "time_series_forecast",
            "id": "forecast-b0ee4abbba2f4f4591e2f63790d8a476-0",
            "status": "completed",
            "error": None,
            "content": [
                {
                    "type": "multivariate_time_series",
                    "name": _NAME,
                    "mean_forecast": [
                        [5.2081604, 29.243149, 1.4442511, 87.814354, 978.8143, 3.046376, 8.959215],
                        [7.441284, -4.28714, 2.0333223, 86.08063, 979.3698, 3.0125277, 8.795876],
                    ],
                    "frequency": "H",
                    "start_timestamp": "1991-01-01T01:00:00",
                    "timestamps": ["1991-01-01T01:00:00", "1991-01-01T02:00:00"],
                }
            ],
        }
    ],
}

# To the request for a backtest, of one of its channels.
BACKTEST_ANSWER: Example = {
    "id": "backtest-5a0f4d0c6cbb4f0f9d4d9a4f4a6b8a11",
    "created_at": 1795212683,
    "status": "completed",
    "error": None,
    "model": "patchtst",
    "model_version": "1",
    "outputs": [
        {
            "type": "time_series_backtest",
            "id": "backtest-5a0f4d0c6cbb4f0f9d4d9a4f4a6b8a11-0",
            "status": "completed",
            "error": None,
            "content": [
                {
                    "name": _NAME,
                    "horizon": 2,
                    "stride": 2,
                    "origins": 12,
                    "first_origin": "1991-01-01T01:00:00",
                    "last_origin": "1991-01-01T23:00:00",
                    "channels": [
                        {
                            "name": "temperature",
                            "mse": 2.9,
                            "mae": 1.3,
                            "steps": {"mse": [1.9, 3.9], "mae": [1.0, 1.6]},
                            "last_value": {"mse": 4.1, "mae": 1.6, "relative_mae": 0.8125},
                            "seasonal_naive": {
                                "mse": 14.4,
                                "mae": 2.6,
                                "relative_mae": 0.5,
                                "season": 24,
                            },
                            "below": {"0.1": 0.125, "0.9": 0.875},
                            "intervals": [
                                {
                                    "level": 0.8,
                                    "coverage": 0.75,
                                    "width": 4.2,
                                    "steps": {"coverage": [0.8, 0.7], "width": [3.5, 4.9]},
                                }
                            ],
                        }
                    ],
                }
            ],
        }
    ],
}

_REFUSALS: tuple[errors.ServiceError, ...] = (
    errors.UnreadableError("the body is not JSON: EOF while parsing a value at line 1 column 10"),
    errors.UnauthorizedError("the key is not one of this server's"),
    errors.ForbiddenError("expected an admin key, got one for forecasts"),
    errors.UnknownModelError(
        "no model 'arima'; served (GET /models): autoformer, patchtst, transformer", param="model"
    ),
    errors.SlowBodyError("the deadline passed before the whole body was here"),
    errors.LoadFailedError("patchtst@1 was refused: model.onnx: sha256 differs"),
    errors.TooLargeError("expected a body of at most 67108864 bytes"),
    errors.UnsupportedMediaError(
        "expected one of gzip, deflate, zstd, got 'br'",
        param="Content-Encoding",
        accepted=("gzip", "deflate", "zstd"),
    ),
    errors.QueueFullError(
        "2048 windows are waiting and 1 more do not fit: at most 2048 may wait", retry_after=1
    ),
    errors.NotReadyError("the server is stopping"),
    errors.DeadlineExceededError("the deadline passed before the forecast was ready"),
)
# What is wrong with a request depends on what it asks for: the end of its path.
_INVALID: dict[str, errors.ServiceError] = {
    "forecast": errors.InvalidInputError(
        "expected at least 168 rows, the model's context, got 20", param="inputs[0].series"
    ),
    "backtest": errors.InvalidInputError(
        "expected at least 192 rows (168 to read and 24 that follow), got 20",
        param="inputs[0].series",
    ),
    "infer": errors.InvalidInputError(
        "expected [batch, 168, 7], got [1, 20, 7]", param="inputs[0].shape"
    ),
    "index": errors.InvalidInputError(
        "expected true or false, got the string 'yes'", param="ready"
    ),
    "load": errors.NotSupportedError(
        "models are loaded as they are in the repository, with no other configuration or files",
        param="parameters.config",
    ),
    "unload": errors.InvalidInputError(
        "expected a string, got a list of 0", param="parameters.version"
    ),
}


_REASONS = {
    400: "The body is not what its headers say, or not JSON.",
    401: "The key is missing, or not one of this server's.",
    403: "The key does not allow this, or nothing does.",
    404: "Unknown model or version, or it has no example.",
    408: "The body came too slowly.",
    409: "The bundle was refused; what was there still answers.",
    413: "The body is over the limit.",
    415: "Not in a form that is read; see `Accept` or `Accept-Encoding`.",
    422: "The request does not fit the model.",
    429: "Too much is waiting; see `Retry-After`.",
    503: "The model is not ready, or failed, or there is no room; see `Retry-After`.",
    504: "The deadline passed.",
}


def requests(path: str) -> dict[str, Example]:
    """Bodies to POST to a path, by what they ask for."""
    match _last(path):
        case "forecast":
            return _forecasts()
        case "backtest":
            return {"A day, two hours at a time": _backtest()}
        case "infer":
            return {"One run of the model": _inference()}
        case "index":
            return {"All versions": {}, "Versions that answer": {"ready": True}}
        case word:
            return {
                f"Versions that the server would {word}": {},
                "This version": {"parameters": {"version": PARAMETERS["version"]}},
            }


def refusals(kind: type[BaseModel], *statuses: int) -> dict[int | str, dict[str, Any]]:
    """What the document says of a route's errors.

    Args:
        kind: What their bodies are.
        statuses: Of them.
    """
    return {status: {"model": kind, "description": _REASONS[status]} for status in statuses}


def refusal(path: str, status: int) -> Example | None:
    """The body of an answer with an error's status; None if no error of the path has it."""
    own = _INVALID.get(_last(path))
    for error in (*_REFUSALS, *([own] if own else [])):
        if error.status == status:
            return errors.error_body(path, errors.error_object(error))
    return None


def window() -> Example:
    """A window of a model, with what followed."""
    hours = np.datetime64(_START) + np.arange(_HOURS) * np.timedelta64(1, "h")
    series = {
        "name": _NAME,
        "series": _rows(_HOURS),
        "channels": list(_CHANNELS),
        "frequency": "h",
        "timestamps": hours.astype(str).tolist(),
    }
    return {
        "model": "patchtst@1",
        "request": {"model": "patchtst@1", "inputs": [series]},
        "actual": _rows(_HOURS + 24)[_HOURS:],
        "channels": list(_CHANNELS),
        "targets": list(_CHANNELS),
    }


def _last(path: str) -> str:
    return path.rpartition("/")[2]


def _forecasts() -> dict[str, Example]:
    week = _rows(_HOURS)
    gap = [[None, *row[1:]] if hour == 17 else row for hour, row in enumerate(week)]
    series = {"name": _NAME, "series": week, "start_timestamp": _START}
    return {
        "Two hours": {"model": "patchtst", "inputs": [series], "options": {"horizon": 2}},
        "Two days with quantiles, from a history with a gap": {
            "model": "patchtst",
            "inputs": [{**series, "series": gap}],
            "options": {"horizon": 48, "quantiles": [0.1, 0.9], "missing": "interpolate"},
        },
        "With attention, in a time zone": {
            "model": "autoformer",
            "inputs": [{**series, "time_zone": "America/New_York"}],
            "options": {"attention": {"stages": ["encoder.0.self"]}},
        },
    }


def _backtest() -> Example:
    days = {"name": _NAME, "series": _rows(_HOURS + 24), "start_timestamp": _START}
    options = {"horizon": 2, "quantiles": [0.1, 0.9]}
    return {"model": "patchtst", "inputs": [days], "options": options}


def _inference() -> Example:
    week = _rows(_HOURS)
    history = {
        "name": "history",
        "shape": [1, len(week), len(week[0])],
        "datatype": "FP32",
        "data": list(chain.from_iterable(week)),
    }
    return {"id": "1", "inputs": [history], "outputs": [{"name": "forecast"}]}


def _rows(hours: int) -> list[list[float]]:
    """The demo's seven channels (W/m² twice, °C, %, mbar, m/s, tenths), made up."""
    return [_hour(hour) for hour in range(hours)]


def _hour(hour: int) -> list[float]:
    sun = max(0.0, -math.cos(2 * math.pi * hour / 24))
    warmth = math.sin(2 * math.pi * (hour - 9) / 24)
    # Not the same every day: what repeats exactly leaves an Autoformer no clear choice of lags.
    drift = hour / _HOURS
    irradiance = [float(round((400 - 100 * drift) * sun)), float(round(300 * sun * drift))]
    weather = [5 * warmth + 8 * drift, 70 - 15 * warmth, 985 + 9 * drift, 3 + warmth, 9 * drift]
    return [*irradiance, *(round(value, 1) for value in weather)]
