from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from foretell.service.errors import InvalidInputError
from foretell.service.inference.codec import Inference, InferenceCodec, Output
from tests.service.client import Client

FORECAST = np.arange(16, dtype=np.float32).reshape(2, 4, 2) / 8
LAGS = np.array([[3, 1], [2, 0]])


def job(client: Client, *outputs: tuple[str, bool], id: str | None = None) -> Inference:  # noqa: A002
    wanted = [Output(name, 1, attention=False, binary=binary) for name, binary in outputs]
    return Inference(client.repository.registry.find("multi"), id, {"history": FORECAST}, wanted)


def test_json(client: Client) -> None:
    asked = job(client, ("lags", False), ("forecast", False), id="7")
    answer, headers = InferenceCodec(client.settings).encode(
        asked, {"forecast": FORECAST, "lags": LAGS}
    )
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


def test_binary_follows_in_order(client: Client) -> None:
    long = np.repeat(FORECAST, 20, axis=0)
    asked = job(client, ("forecast", True), ("lags", False), ("more", True))
    asked = replace(asked, feeds={"history": long})
    # Outputs of a batch are slices of it.
    outputs = {"forecast": long, "lags": LAGS, "more": LAGS[:, ::-1]}
    answer, headers = InferenceCodec(client.settings).encode(asked, outputs)
    assert headers["content-type"] == "application/octet-stream"
    length = int(headers["inference-header-content-length"])
    head = json.loads(answer[:length])
    assert "id" not in head
    assert [each.get("parameters") for each in head["outputs"]] == [
        {"binary_data_size": long.nbytes},
        None,
        {"binary_data_size": 32},
    ]
    assert answer[length:] == long.tobytes() + LAGS[:, ::-1].tobytes()
    # Binary tensors are copied.
    work = (long.nbytes // 16) + LAGS.nbytes + (LAGS.nbytes // 16)
    assert InferenceCodec(client.settings).encoding_work(asked, outputs) == work


def test_nothing_but_numbers_leaves(client: Client) -> None:
    bad = FORECAST.copy()
    bad[1, 2, 0] = np.inf
    for binary in (True, False):
        with pytest.raises(InvalidInputError, match="forecast of window 1 is not finite"):
            InferenceCodec(client.settings).encode(
                job(client, ("forecast", binary)), {"forecast": bad, "lags": LAGS}
            )
    assert InferenceCodec(client.settings).encode(
        job(client, ("lags", False)), {"forecast": bad, "lags": LAGS}
    )[0]
