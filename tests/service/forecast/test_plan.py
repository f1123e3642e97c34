from __future__ import annotations

from typing import Any

import pytest

from foretell.service.errors import InvalidInputError, NotSupportedError, ServiceError
from foretell.service.forecast.options import Options, read_options
from foretell.service.forecast.requests import ForecastOptions
from tests.service.client import Client


def made(client: Client, name: str = "calibrated", inputs: int = 1, **options: Any) -> Options:
    read = ForecastOptions.model_validate(options)
    return read_options(read, inputs, client.repository.registry.find(name), client.settings)


def refused(client: Client, name: str = "calibrated", inputs: int = 1, **options: Any) -> Any:
    with pytest.raises(ServiceError) as error:
        made(client, name, inputs, **options)
    return error.value


def test_defaults(client: Client) -> None:
    assert made(client) == Options(4, 1, "error", (), None)


@pytest.mark.parametrize(
    ("horizon", "passes"), [(1, 1), (4, 1), (5, 2), (8, 2), (9, 3), (16, 4), (None, 1)]
)
def test_passes(client: Client, horizon: int | None, passes: int) -> None:
    made_of = made(client, horizon=horizon)
    assert (made_of.horizon, made_of.passes) == (horizon or 4, passes)


def test_over_the_longest_horizon(client: Client) -> None:
    error = refused(client, horizon=17)
    assert isinstance(error, NotSupportedError)
    assert error.param == "options.horizon"
    assert "at most 16 steps, 4 times (max_horizon_multiple) the 4 that calibrated" in error.message
    assert "got a number of over 70 digits" in refused(client, horizon=10**80).message


def test_quantiles_stay_in_their_order(client: Client) -> None:
    assert made(client, quantiles=[0.9, 0.1]).quantiles == (0.9, 0.1)
    assert made(client, quantiles=[]).quantiles == ()
    error = refused(client, quantiles=[0.1, 0.5, 0.1])
    assert (error.param, error.message) == ("options.quantiles[2]", "0.1 is asked for twice")
    assert isinstance(refused(client, "repeat", quantiles=[0.5]), NotSupportedError)


def test_quantiles_of_a_longer_horizon_than_was_calibrated(client: Client) -> None:
    made(client, quantiles=[0.5], horizon=12)
    error = refused(client, quantiles=[0.5], horizon=13)
    assert isinstance(error, NotSupportedError)
    assert error.param == "options.quantiles"


def test_the_size_of_the_answer(client: Client) -> None:
    limit = client.settings.max_answer_values
    made(client, "multi", inputs=limit // 8)
    error = refused(client, "multi", inputs=limit // 8 + 1)
    assert isinstance(error, InvalidInputError)
    assert error.param == "options"
    assert f"would hold {limit + 8} values and may hold {limit} (max_ans" in error.message
    assert "max_answer_values" in refused(client, inputs=limit // 8 + 1, quantiles=[0.5]).message


def test_the_size_of_the_attention(client: Client) -> None:
    limit = client.settings.max_attention_values
    made(client, inputs=limit // 18, attention=True)
    error = refused(client, inputs=limit // 18 + 1, attention=True)
    assert error.param == "options.attention"
    assert f"may hold {limit} (max_attention_values)" in error.message
    made(client, inputs=limit // 18 + 1, attention={"heads": [0]})
