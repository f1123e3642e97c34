"""Requests for tensors."""

from __future__ import annotations

import json
from typing import Any

import httpx
import numpy as np
from numpy.typing import NDArray

from tests.service.client import Client

HEADER = "Inference-Header-Content-Length"
HISTORY = np.arange(16, dtype=np.float32).reshape(1, 8, 2)


def tensor(values: NDArray[Any] = HISTORY, **fields: Any) -> dict[str, Any]:
    """An input as JSON."""
    data = values.ravel().tolist()
    return {"name": "history", "shape": [*values.shape], "datatype": "FP32", "data": data} | fields


def request(*inputs: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"inputs": list(inputs) or [tensor()], **fields}


def binary(values: NDArray[Any] = HISTORY, **fields: Any) -> dict[str, Any]:
    """An input that follows the JSON."""
    found = tensor(values, parameters={"binary_data_size": values.nbytes}, **fields)
    del found["data"]
    return found


def joined(head: dict[str, Any], *tensors: NDArray[Any]) -> tuple[bytes, dict[str, str]]:
    """A body of JSON and what follows, and its headers."""
    text = json.dumps(head).encode()
    return text + b"".join(each.tobytes() for each in tensors), {HEADER: str(len(text))}


def infer(
    client: Client,
    body: dict[str, Any] | bytes,
    headers: dict[str, str] | None = None,
    model: str = "multi",
) -> httpx.Response:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return client.request(
        "POST", f"/v2/models/{model}/infer", content=content, headers=headers or {}
    )


def refused(
    client: Client, body: dict[str, Any] | bytes, headers: dict[str, str] | None = None
) -> tuple[int, str]:
    """Status and message of a refused request."""
    answer = infer(client, body, headers)
    (message,) = answer.json().values()
    return answer.status_code, message
