from __future__ import annotations

import json
import weakref
from typing import Any

import numpy as np
import pytest

from foretell.service.errors import ServiceError
from foretell.service.forecast.job import Job, decode
from foretell.service.forecast.options import FORECASTING, Options
from foretell.service.forecast.parse import JsonCodec, parse
from foretell.service.forecast.series import Series
from tests.service.client import Client, request_of

EIGHT = [float(n) for n in range(8)]
PAIRS = [[float(n), -float(n)] for n in range(8)]


def job(client: Client, *inputs: dict[str, Any], model: str = "repeat", **rest: Any) -> Job:
    body = {"model": model, "inputs": list(inputs), **rest}
    envelope, ignored = parse(json.dumps(body).encode())
    model = client.repository.registry.find(envelope.model)
    return decode(envelope, ignored, model, client.settings)


def test_a_request_is_not_held_while_it_is_forecast(client: Client) -> None:
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


def test_a_minimal_request(client: Client) -> None:
    decoded = job(client, {"series": EIGHT})
    assert only(decoded) == Series("series-0", 0, True, None, None, {})
    assert decoded.options == Options(4, 1, "error", (), None)
    assert decoded.calendar is None
    np.testing.assert_array_equal(decoded.history, np.array(EIGHT)[None, :, None])
    assert decoded.history.dtype == np.float32


def test_metadata_is_kept_as_it_is(client: Client) -> None:
    metadata = {"id": 2**70, "nested": {"list": [1, None, "é"]}}
    decoded = job(client, {"series": EIGHT}, metadata=metadata)
    assert decoded.metadata is not None
    assert json.loads(decoded.metadata) == metadata


def test_no_input_is_good(client: Client) -> None:
    with pytest.raises(ServiceError) as error:
        job(client, {"series": EIGHT[1:]}, {"series": "x"})
    assert error.value.param == "inputs[0].series"
