"""Models that NeuralForecast itself has trained, from its folder to answers of a server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from foretell.commands.import_ import command
from foretell.importers.neuralforecast import read
from tests.neuralforecast import (
    CHANNELS,
    HORIZON,
    PATCHES,
    STEPS,
    Floats,
    adopt,
    assert_close,
    by_series,
    forecast,
    inputs,
    train,
    walks,
    windows,
)
from tests.service.client import Client

# Of those that are served: exports take their time.
ONE = {"encoder_layers": 1}
# By alias: the class, its arguments, and whether it is served as well.
MODELS: dict[str, tuple[str, dict[str, Any], bool]] = {
    "patchtst": ("PatchTST", PATCHES | ONE | {"scaler_type": "robust", "revin_affine": True}, True),
    "before": (
        "PatchTST",
        PATCHES | {"batch_normalization": True, "scaler_type": "standard", "loss": "MSE"},
        False,
    ),
    "long": (
        "PatchTST",
        PATCHES
        | {"patch_len": 99, "res_attention": False, "activation": "relu", "dropout": 0.0}
        | {"revin_subtract_last": False, "learn_pos_embed": False},
        False,
    ),
    "bare": ("PatchTST", PATCHES | {"revin": False, "scaler_type": "minmax1"}, False),
    "dlinear": ("DLinear", {"moving_avg_window": 5, "scaler_type": "revin"}, True),
    "itransformer": ("iTransformer", CHANNELS | {"scaler_type": "minmax"}, True),
    "decoupled": (
        "iTransformer",
        CHANNELS | {"use_norm": False, "scaler_type": "revin", "loss": "HuberLoss"},
        False,
    ),
    "transformer": (
        "VanillaTransformer",
        STEPS | ONE | {"scaler_type": "invariant", "decoder_layers": 2, "activation": "relu"},
        True,
    ),
    "autoformer": (
        "Autoformer",
        STEPS | ONE | {"scaler_type": "standard", "factor": 2, "MovingAvg_window": 5},
        True,
    ),
    "label": (
        "Autoformer",
        STEPS | {"decoder_input_size_multiplier": 0.3, "scaler_type": "robust", "factor": 1},
        False,
    ),
}
SERVED = [name for name, (_, _, served) in MODELS.items() if served]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Floats]]:
    """A folder of trained models, and what each forecasts of every window, `[16, horizon]`."""
    folder = tmp_path_factory.mktemp("neuralforecast") / "saved"
    models = {alias: (kind, arguments) for alias, (kind, arguments, _) in MODELS.items()}
    found = train(models, walks(), windows(), folder)
    return folder, {alias: columns[..., 0] for alias, columns in found.items()}


@pytest.mark.parametrize("name", MODELS)
def test_an_adopted_model_forecasts_what_the_library_does(
    library: tuple[Path, dict[str, Floats]], name: str
) -> None:
    folder, expected = library
    found = forecast(read(folder, f"{name}_0").model, MODELS[name][0], windows())
    steady = np.ones(16, bool)
    if MODELS[name][0] == "Autoformer":
        # All lags of a constant or a line correlate alike: rounding chooses among them.
        steady[[3, 4, 6]] = False
    assert_close(found[steady], expected[name][steady])


@pytest.fixture(scope="module")
def client(
    library: tuple[Path, dict[str, Floats]], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Client]:
    """A server of five of them, each adopted by one command."""
    repository = tmp_path_factory.mktemp("repository")
    for name in SERVED:
        adopt(library[0], name, repository)
    with Client(repository) as client:
        yield client


@pytest.mark.parametrize("name", SERVED)
def test_over_http(client: Client, library: tuple[Path, dict[str, Floats]], name: str) -> None:
    rows = [
        {"series": window.tolist(), "start_timestamp": "2024-01-01T00:00:00"}
        for window in inputs(MODELS[name][0], windows())
    ]
    answer = client.forecast({"model": name, "inputs": rows})
    assert answer.status_code == 200, answer.text
    contents = [output["content"][0] for output in answer.json()["outputs"]]
    forecasts = [np.array(content["mean_forecast"], np.float32) for content in contents]
    found = by_series(np.stack(forecasts).reshape(len(rows), HORIZON, -1))
    clear = np.array([not content.get("ill_conditioned", False) for content in contents])
    assert clear.sum() >= (12 if name == "autoformer" else len(rows))
    steady = np.repeat(clear, 16 // len(rows))
    assert_close(found[steady], library[1][name][steady])


def test_series_are_named_as_they_were_and_sorted(client: Client) -> None:
    described = client.get("/models/itransformer").json()
    assert described["channels"] == ["s00", "s01", "s02", "s03"]
    assert client.get("/models/dlinear").json()["channels"] == ["y"]


def test_a_short_history_is_refused(client: Client) -> None:
    """The library would put zeros before it."""
    rows = [{"series": [[1.0], [2.0]], "start_timestamp": "2024-01-01T00:00:00"}]
    answer = client.forecast({"model": "dlinear", "inputs": rows})
    assert "17" in answer.text
    assert not answer.is_success or answer.json()["outputs"][0]["error"]


def test_one_model_of_several_is_asked_for(
    library: tuple[Path, dict[str, Floats]], tmp_path: Path
) -> None:
    for chosen, message in (
        ([], "holds several models; choose one with --member: autoformer_0, bare_0, "),
        (["--member", "patchtst"], "--member patchtst: no such model; there is autoformer_0, "),
    ):
        options = ["--from", "neuralforecast", *chosen, "--out", str(tmp_path / "out")]
        result = CliRunner().invoke(command, [str(library[0]), *options])
        assert (result.exit_code, message in result.stderr) == (2, True)
    assert list(tmp_path.iterdir()) == []
