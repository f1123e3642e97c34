from __future__ import annotations

import pytest
from pydantic import BaseModel

from foretell.service import errors
from foretell.service.api.openapi import examples
from foretell.service.forecast.answers import BacktestResponse, ForecastResponse, ModelExample
from foretell.service.forecast.requests import BacktestRequest, ForecastRequest, TableOptions
from foretell.service.inference.wire import ChangeRequest, IndexRequest, InferRequest

EXAMPLES = examples()


@pytest.mark.parametrize(
    ("word", "kind"),
    [
        ("forecast", ForecastRequest),
        ("backtest", BacktestRequest),
        ("infer", InferRequest),
        ("index", IndexRequest),
        ("load", ChangeRequest),
        ("unload", ChangeRequest),
    ],
)
def test_requests_are_of_their_kind(word: str, kind: type[BaseModel]) -> None:
    found = EXAMPLES["requests"][word]
    assert found
    for body in found.values():
        kind.model_validate(body)


@pytest.mark.parametrize(
    ("word", "kind"),
    [("forecast", ForecastResponse), ("backtest", BacktestResponse), ("example", ModelExample)],
)
def test_answers_are_of_their_kind(word: str, kind: type[BaseModel]) -> None:
    kind.model_validate(EXAMPLES["answers"][word])


def test_parameters_are_options_of_tables() -> None:
    TableOptions.model_validate(EXAMPLES["parameters"])


def test_errors_are_the_services() -> None:
    statuses = {name: kind.status for name, kind in errors.ServiceError._types.items()}
    for status, error in EXAMPLES["errors"].items():
        assert statuses[error["type"]] == int(status)
    for error in EXAMPLES["invalid"].values():
        assert statuses[error["type"]] == 422
