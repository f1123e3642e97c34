from __future__ import annotations

import gzip
import json
from dataclasses import replace

import numpy as np
import pytest

from foretell.service.errors import InvalidInputError
from foretell.service.inference.decode import Job, Output
from foretell.service.inference.routes import encode, encoding_work
from tests.service.client import Client

FORECAST = np.arange(16, dtype=np.float32).reshape(2, 4, 2) / 8
LAGS = np.array([[3, 1], [2, 0]])


def job(client: Client, *outputs: tuple[str, bool], id: str | None = None) -> Job:  # noqa: A002
    wanted = [Output(name, 1, attention=False, binary=binary) for name, binary in outputs]
    return Job(client.repository.registry.find("multi"), id, {"history": FORECAST}, wanted, None)


def test_json(client: Client) -> None:
    asked = job(client, ("lags", False), ("forecast", False), id="7")
    answer, headers = encode(asked, {"forecast": FORECAST, "lags": LAGS}, "")
    assert headers == {"content-type": "application/json"}
    assert json.loads(answer) == {
        "id": "7",
        "model_name": "multi",
        "model_version": "1",
        "outputs": [
            {"name": "lags", "datatype": "INT64", "shape": [2, 2], "data": [3, 1, 2, 0]},
            {
                "name": "forecast",
                "datatype": "FP32",
                "shape": [2, 4, 2],
                "data": FORECAST.ravel().tolist(),
            },
        ],
    }


@pytest.mark.parametrize("accepted", ["", "gzip"])
def test_binary_follows_in_order(client: Client, accepted: str) -> None:
    long = np.repeat(FORECAST, 20, axis=0)
    asked = job(client, ("forecast", True), ("lags", False), ("more", True))
    asked = replace(asked, feeds={"history": long})
    # Outputs of a batch are slices of it.
    outputs = {"forecast": long, "lags": LAGS, "more": LAGS[:, ::-1]}
    answer, headers = encode(asked, outputs, accepted)
    body = gzip.decompress(answer) if accepted else answer
    assert headers["content-type"] == "application/octet-stream"
    assert headers.get("content-encoding", "") == accepted
    length = int(headers["inference-header-content-length"])
    head = json.loads(body[:length])
    assert "id" not in head
    assert [each.get("parameters") for each in head["outputs"]] == [
        {"binary_data_size": long.nbytes},
        None,
        {"binary_data_size": 32},
    ]
    assert body[length:] == long.tobytes() + LAGS[:, ::-1].tobytes()
    # Arrays are sent as they are, where nothing is compressed.
    part = 1 if accepted else 16
    work = (long.nbytes // part) + LAGS.nbytes + (LAGS.nbytes // part)
    assert encoding_work(asked, outputs, accepted) == work


def test_nothing_but_numbers_leaves(client: Client) -> None:
    bad = FORECAST.copy()
    bad[1, 2, 0] = np.inf
    for binary in (True, False):
        with pytest.raises(InvalidInputError, match="forecast of window 1 is not finite"):
            encode(job(client, ("forecast", binary)), {"forecast": bad, "lags": LAGS}, "")
    assert encode(job(client, ("lags", False)), {"forecast": bad, "lags": LAGS}, "")[0]
