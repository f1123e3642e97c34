"""Models whose series NeuralForecast itself has scaled one by one, from its folder to a server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from foretell.importers.neuralforecast import read
from tests.neuralforecast import (
    CHANNELS,
    HORIZON,
    PATCHES,
    TOLD,
    Floats,
    adopt,
    assert_close,
    forecast,
    inputs,
    train,
    walks,
    windows,
)
from tests.service.client import Client

MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "patchtst": ("PatchTST", PATCHES | {"revin_affine": True}),
    "implicit": ("PatchTST", PATCHES | {"loss": ("IQLoss", {})}),
    "quantiles": ("DLinear", {"moving_avg_window": 5, "loss": ("MQLoss", {"level": [80]})}),
    "itransformer": ("iTransformer", CHANNELS),
}
Library = tuple[str, Path, dict[str, Floats]]


@pytest.fixture(scope="module", params=["standard", "robust", "robust-iqr", "minmax"])
def library(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Library:
    """The scaler, a folder of models, and all that each says of every window."""
    folder = tmp_path_factory.mktemp("neuralforecast") / "saved"
    return request.param, folder, train(MODELS, walks(), windows(), folder, request.param)


@pytest.mark.parametrize("name", ["patchtst", "implicit", "itransformer"])
def test_an_adopted_model_forecasts_what_the_library_does(library: Library, name: str) -> None:
    scaler, folder, expected = library
    model = read(folder, f"{name}_0").model
    assert str(model.config.window_norm).startswith(f"local-{scaler}")
    said = expected[name][..., TOLD.index(0.5) if name == "implicit" else 0]
    assert_close(forecast(model, MODELS[name][0], windows()), said)


def test_over_http(library: Library, tmp_path: Path) -> None:
    scaler, folder, expected = library
    assert scaler in adopt(folder, "quantiles", tmp_path)
    rows = [{"series": window.tolist()} for window in inputs("DLinear", windows())]
    asked = {"inputs": rows, "options": {"quantiles": [0.1, 0.9]}}
    with Client(tmp_path) as client:
        answer = client.forecast(asked)
    assert answer.status_code == 200, answer.text
    contents = [output["content"][0] for output in answer.json()["outputs"]]
    told = [
        [content["quantiles"]["0.1"], content["mean_forecast"], content["quantiles"]["0.9"]]
        for content in contents
    ]
    low, middle, high = np.array(told, np.float32).reshape(16, 3, HORIZON).swapaxes(0, 1)
    # The library says the median first, and its others may cross.
    said = expected["quantiles"]
    assert_close(middle, said[..., 0])
    assert_close(np.stack([low, high], -1), np.sort(said, axis=-1)[..., [0, 2]])
