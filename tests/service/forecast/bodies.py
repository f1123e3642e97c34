"""Requests for forecasts, and what is answered to tables."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import httpx
import numpy as np
import pyarrow as pa
from pyarrow import ipc

from foretell.service.forecast.answers import ForecastResponse
from foretell.service.forecast.warnings import AnswerWarning
from tests.service.client import Client

EIGHT = [float(n) for n in range(8)]
PAIRS = [[float(n), 2.0 - n] for n in range(8)]


def body(*inputs: dict[str, Any], model: str = "repeat", **options: Any) -> dict[str, Any]:
    return {"model": model, "inputs": list(inputs) or [{"series": EIGHT}], "options": options}


def request_body(*inputs: dict[str, Any], model: str = "repeat", **rest: Any) -> dict[str, Any]:
    return {"model": model, "inputs": list(inputs), **rest}


@contextmanager
def submitted(client: Client, name: str) -> Iterator[list[int]]:
    """The number of windows of each run that a model gets meanwhile."""
    model, runs = client.repository.registry.find(name), list[int]()
    submit = model.submit

    def counted(feeds: Any, **options: Any) -> Any:
        runs.append(len(feeds["history"]))
        return submit(feeds, **options)

    with patch.object(model, "submit", counted):
        yield runs


def warned(client: Client, request: dict[str, Any]) -> list[AnswerWarning]:
    """The warnings of the answer to a request."""
    answer = client.forecast(request)
    assert answer.status_code == 200, answer.text
    ForecastResponse.model_validate(answer.json())
    found: list[AnswerWarning] = answer.json().get("warnings", [])
    return found


def table_of(answer: httpx.Response) -> pa.Table:
    """The table of an answer in Arrow's streaming format."""
    assert answer.status_code == 200, answer.text
    return ipc.open_stream(answer.content).read_all()


def notes_of(table: pa.Table) -> dict[str, Any]:
    """Metadata of a table."""
    found: dict[str, Any] = json.loads(table.schema.metadata[b"foretell"])
    return found


def as_lists(value: object) -> Any:
    """A value with lists in place of its arrays."""
    if isinstance(value, dict):
        return {name: as_lists(part) for name, part in value.items()}
    if isinstance(value, list):
        return [as_lists(part) for part in value]
    return value.tolist() if isinstance(value, np.ndarray) else value
