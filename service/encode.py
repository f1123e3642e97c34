"""From a job's outputs to the bytes of an answer, inside KServe's ForecastResponse."""

from __future__ import annotations

import time
import uuid
from typing import Any

import numpy as np
import orjson

from bundle.frequency import Frequency
from service.attention import describe
from service.decode import Job, Series
from service.errors import InvalidInputError, ServiceError
from service.failures import error_object
from service.model import FORECAST, MARGIN
from service.session import Arrays


def answer_bytes(job: Job, outputs: Arrays) -> int:
    """At least how many bytes of numbers the answer will hold."""
    size = sum(rows.nbytes for rows in outputs.values())
    if job.attention is not None:
        # The map of an auto-correlation is made of a few lags.
        channels = len(job.model.manifest.channels)
        size += 4 * len(job.entries) * job.attention.values(channels)
    return size


def encode(job: Job, outputs: Arrays) -> bytes:
    """Write the answer.

    Args:
        job: The request.
        outputs: `[windows, …]` by output name.

    Raises:
        ServiceError: no input has a forecast; it is the first input's error.
    """
    identifier = f"forecast-{uuid.uuid4().hex}"
    answers: list[dict[str, Any]] = []
    failures: list[ServiceError] = []
    for index, entry in enumerate(job.entries):
        answer = {"type": "time_series_forecast", "id": f"{identifier}-{index}"}
        try:
            content = _forecast(job, entry, outputs, f"inputs[{index}]")
            answers.append(answer | {"status": "completed", "content": [content], "error": None})
        except ServiceError as error:
            failures.append(error)
            answers.append(
                answer | {"status": "error", "content": [], "error": error_object(error)}
            )
    if len(failures) == len(answers):
        raise failures[0]
    response: dict[str, Any] = {
        "id": identifier,
        "created_at": int(time.time()),
        "status": "partial" if failures else "completed",
        "error": None,
        "model": job.model.name,
        "model_version": job.model.version,
        "outputs": answers,
    }
    if job.metadata is not None:
        response["metadata"] = orjson.Fragment(job.metadata)
    return orjson.dumps(response, option=orjson.OPT_SERIALIZE_NUMPY)


def _forecast(
    job: Job, series: Series | ServiceError, outputs: Arrays, place: str
) -> dict[str, Any]:
    if isinstance(series, ServiceError):
        raise series
    own = {name: rows[series.row] for name, rows in outputs.items()}
    if not all(np.isfinite(rows).all() for rows in own.values()):
        raise InvalidInputError(
            "the model's forecast of this series is not finite: its values are too far from those "
            "it was trained on",
            param=f"{place}.series",
        )
    manifest = job.model.manifest
    frequency = manifest.step
    values = own[FORECAST][: job.horizon]
    if series.columns is not None:
        values = values[:, series.columns]
    answer: dict[str, Any] = {
        "type": f"{'univariate' if series.univariate else 'multivariate'}_time_series",
        "name": series.name,
        "mean_forecast": np.ascontiguousarray(values[:, 0] if series.univariate else values),
        "frequency": frequency.kserve,
        "start_timestamp": "",
    }
    if frequency.multiple != 1:
        answer["frequency_multiple"] = frequency.multiple
    if Frequency.parse(frequency.kserve) != frequency:
        answer["frequency_alias"] = str(frequency)
    if series.timestamps is not None:
        answer["start_timestamp"] = series.timestamps[0]
        answer["timestamps"] = series.timestamps
    if manifest.margin_bound is not None:
        answer["ill_conditioned"] = bool(own[MARGIN] < manifest.margin_bound)
    if series.columns is not None:
        answer["channels"] = [manifest.channels[column] for column in series.columns]
    if job.attention is not None:
        answer["attention"] = describe(
            job.attention, own, series.timeline, frequency, series.columns
        )
    return answer
