"""Requests in the forms the servers take, and the forecast in the forms they answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Body = Callable[[Floats], dict[str, Any]]
Answer = Callable[[Any], Any]


def ours(windows: Floats) -> dict[str, Any]:
    """`POST /forecast`, an input a window."""
    return {"inputs": [{"series": window.tolist()} for window in windows]}


def ours_answer(answer: Any) -> Any:  # noqa: ANN401 - JSON
    """The forecast of the first window."""
    return answer["outputs"][0]["content"][0]["mean_forecast"]


def plain(windows: Floats) -> dict[str, Any]:
    """What one would write by hand."""
    return {"series": windows[0].tolist()}


def batched(windows: Floats) -> dict[str, Any]:
    """The same with a batch axis."""
    return {"series": windows.tolist()}


def plain_answer(answer: Any) -> Any:  # noqa: ANN401 - JSON
    """The forecast."""
    return answer["forecast"]


def batched_answer(answer: Any) -> Any:  # noqa: ANN401 - JSON
    """The forecast of the first window."""
    return answer[0]


def open_inference(windows: Floats) -> dict[str, Any]:
    """The Open Inference Protocol with JSON tensors."""
    tensor = {
        "name": "history",
        "shape": windows.shape,
        "datatype": "FP32",
        "data": windows.ravel().tolist(),
    }
    return {"inputs": [tensor]}


def open_inference_answer(answer: Any) -> Any:  # noqa: ANN401 - JSON
    """The forecast of the first window."""
    output = answer["outputs"][0]
    return np.reshape(output["data"], output["shape"])[0]
