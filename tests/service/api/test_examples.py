from __future__ import annotations

import pytest
from pydantic import BaseModel

from foretell.service.forecast.answers import ForecastResponse
from foretell.service.forecast.requests import ForecastRequest, TableOptions
from foretell.service.http import examples
from foretell.service.inference.wire import ChangeRequest, IndexRequest, InferRequest

FORECAST, INFER = "/forecast", "/v2/models/{model}/infer"
REPOSITORY = "/v2/repository/"


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        (FORECAST, ForecastRequest),
        (INFER, InferRequest),
        (REPOSITORY + "index", IndexRequest),
        (REPOSITORY + "models/{model}/load", ChangeRequest),
        (REPOSITORY + "models/{model}/unload", ChangeRequest),
    ],
)
def test_requests_are_of_their_kind(path: str, kind: type[BaseModel]) -> None:
    found = examples.requests(path)
    assert found
    for body in found.values():
        kind.model_validate(body)


def test_the_answer_and_the_options_are_of_theirs() -> None:
    ForecastResponse.model_validate(examples.FORECAST_ANSWER)
    TableOptions.model_validate(examples.PARAMETERS)


@pytest.mark.parametrize("status", [400, 401, 404, 408, 413, 415, 422, 429, 503, 504])
def test_an_error_has_the_form_of_its_door(status: int) -> None:
    assert examples.refusal(FORECAST, status)["error"]["code"] == str(status)
    assert isinstance(examples.refusal(INFER, status)["error"], str)


def test_what_is_wrong_names_a_place_of_the_request() -> None:
    assert examples.refusal(FORECAST, 422)["error"]["param"] == "inputs[0].series"
    assert examples.refusal(INFER, 422)["error"].startswith("inputs[0].shape: ")


def test_no_example_is_made_up_for_other_statuses() -> None:
    assert examples.refusal(FORECAST, 418) is None
