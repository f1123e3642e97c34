from __future__ import annotations

import pytest

from foretell.service.forecast.answers import ForecastResponse
from foretell.service.forecast.requests import ForecastOptions
from tests.service.client import Client
from tests.service.kserve import kserve_types

PAIRS = [[float(n), 1.0] for n in range(8)]


def test_attention_may_be_a_boolean() -> None:
    whole = ForecastOptions.model_validate({"attention": True}).attention
    assert whole is not None
    assert whole.heads == "all"
    assert ForecastOptions.model_validate({"attention": False}).attention is None


def test_answers_are_what_the_document_says(client: Client) -> None:
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
    for told, meant in zip(forecast["attention"], described_forecast["attention"], strict=True):
        assert set(told) == set(meant)


def test_every_field_of_the_standard_is_there() -> None:
    types = kserve_types()
    if types is None:
        pytest.skip("kserve is not installed (pip install --no-deps kserve==0.21.0)")
    optional = {"usage"}
    assert set(types.ForecastResponse.model_fields) - optional <= set(ForecastResponse.model_fields)
