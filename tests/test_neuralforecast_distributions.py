"""Distributions of models that NeuralForecast itself has trained, up to answers of a server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import CliRunner

from foretell.bundle.distribution import Distribution
from foretell.commands.import_ import command
from foretell.models.forecaster import Explained, Inputs
from foretell.models.importers.neuralforecast import read
from tests.neuralforecast import (
    CHANNELS,
    HORIZON,
    PATCHES,
    SERIES,
    STEPS,
    Floats,
    assert_close,
    by_series,
    inputs,
    train,
    windows,
)
from tests.service.client import Client


def of(distribution: str) -> dict[str, Any]:
    """A loss whose parameters the library says after mean and quantiles."""
    given = {"distribution": distribution, "return_params": True, "num_samples": 2, "level": [80]}
    return {"loss": ("DistributionLoss", given)}


# By alias: the class and its arguments.
REAL: dict[str, tuple[str, dict[str, Any]]] = {
    "normal": ("PatchTST", PATCHES | {"scaler_type": "robust", "revin_affine": True}),
    "plain": ("PatchTST", PATCHES | {"revin_affine": True} | of("StudentT")),
    "tails": ("DLinear", {"moving_avg_window": 5, "scaler_type": "revin"} | of("StudentT")),
    "channels": ("iTransformer", CHANNELS | {"scaler_type": "minmax1"}),
    "steps": ("VanillaTransformer", STEPS | {"scaler_type": "invariant"} | of("StudentT")),
    "lags": ("Autoformer", STEPS | {"scaler_type": "standard", "factor": 2, "MovingAvg_window": 5}),
}
REAL = {alias: (kind, of("Normal") | arguments) for alias, (kind, arguments) in REAL.items()}
COUNTED: dict[str, tuple[str, dict[str, Any]]] = {
    "counts": ("DLinear", {"moving_avg_window": 5, "scaler_type": "minmax"}),
    "few": ("PatchTST", PATCHES | {"scaler_type": "standard"}),
    "raw": ("VanillaTransformer", STEPS),
}
COUNTED = {
    alias: (kind, arguments | of("NegativeBinomial"))
    for alias, (kind, arguments) in COUNTED.items()
}
MODELS = REAL | COUNTED
SERVED = ("normal", "channels", "counts")
LEVELS = (0.05, 0.5, 0.9)


def asked(name: str) -> Floats:
    """The windows, of counts without the negative values that the library refuses."""
    return np.abs(windows()).round() if name in COUNTED else windows()


@pytest.fixture(scope="module")
def library(
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[dict[str, Path], dict[str, Floats]]:
    """The folder of each model, and its parameters of every window, `[16, horizon, parameters]`."""
    folders, found = {}, {}
    for models, offset in ((REAL, 10.0), (COUNTED, 50.0)):
        folder, random = tmp_path_factory.mktemp("saved") / "nf", np.random.default_rng(0)
        values = random.normal(size=(SERIES, 60)).cumsum(axis=1).astype(np.float32) + offset
        values = values.round() if models is COUNTED else values
        found |= train(models, values, asked(next(iter(models))), folder)
        folders |= dict.fromkeys(models, folder)
    # The mean and the ends and middle of an interval, which are drawn, come first.
    return folders, {alias: columns[..., 4:] for alias, columns in found.items()}


def explained(folders: dict[str, Path], name: str) -> tuple[Explained, Distribution]:
    model = read(folders[name], f"{name}_0").model
    assert model.head is not None
    given = torch.from_numpy(inputs(MODELS[name][0], asked(name)).copy())
    with torch.inference_mode():
        return model.predict(Inputs(given)), Distribution.of(model.head.family)


def steady(name: str) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Where rounding does not choose the lags of an Autoformer."""
    found = np.ones(16, bool)
    found[[3, 4, 6]] = name != "lags"
    return found


@pytest.mark.parametrize("name", REAL)
def test_parameters_are_the_librarys(
    library: tuple[dict[str, Path], dict[str, Floats]], name: str
) -> None:
    found, described = explained(library[0], name)
    assert found.distribution is not None
    expected = library[1][name][steady(name)]
    assert expected.shape[2] == len(described.parameters)
    assert_close(by_series(found.distribution.numpy())[steady(name)], expected)
    assert_close(by_series(found.forecast.numpy())[steady(name)], expected[..., -2])


@pytest.mark.parametrize("name", COUNTED)
def test_those_of_counts_are_too(
    library: tuple[dict[str, Path], dict[str, Floats]], name: str
) -> None:
    """The library calls logits what are shares, and rounds those near 1."""
    found, _ = explained(library[0], name)
    assert found.distribution is not None
    count, logits = found.distribution.unbind(-1)
    expected, share = library[1][name][..., 0], library[1][name][..., 1].astype(np.float64)
    assert_close(by_series(count.numpy()), expected)
    assert_close(by_series(logits.sigmoid().numpy()), share)
    clear = share < 0.99
    mean = np.where(clear, expected * share / (1 - share), 0)
    assert clear.mean() > 0.5
    np.testing.assert_allclose(
        np.where(clear, by_series(found.forecast.numpy()), 0), mean, rtol=1e-4, atol=1e-5
    )


@pytest.fixture(scope="module")
def client(
    library: tuple[dict[str, Path], dict[str, Floats]], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Client]:
    """A server of some of them, each adopted by one command."""
    repository = tmp_path_factory.mktemp("repository")
    for name in SERVED:
        options = ["--from", "neuralforecast", "--member", f"{name}_0", "--to", str(repository)]
        result = CliRunner().invoke(command, [str(library[0][name]), *options, "--name", name])
        assert result.exit_code == 0, result.output
        assert f"DistributionLoss of {MODELS[name][1]['loss'][1]['distribution']}" in result.output
    with Client(repository) as client:
        yield client


@pytest.mark.parametrize("name", SERVED)
def test_quantiles_over_http(
    client: Client, library: tuple[dict[str, Path], dict[str, Floats]], name: str
) -> None:
    given = inputs(MODELS[name][0], asked(name))
    rows = [
        {"series": window.tolist(), "start_timestamp": "2024-01-01T00:00:00"} for window in given
    ]
    options = {"quantiles": list(LEVELS)}
    answer = client.forecast({"model": name, "inputs": rows, "options": options})
    assert answer.status_code == 200, answer.text
    contents = [output["content"][0] for output in answer.json()["outputs"]]
    found, described = explained(library[0], name)
    assert found.distribution is not None

    def told(values: list[object]) -> Floats:
        return by_series(np.array(values, np.float32).reshape(len(rows), HORIZON, -1))

    assert_close(
        told([content["mean_forecast"] for content in contents]),
        by_series(found.forecast.numpy()),
    )
    # Of counts the library's shares are rounded, and a count may be the next one.
    exact = library[1][name] if name in REAL else by_series(found.distribution.numpy())
    for level in LEVELS:
        values = told([content["quantiles"][f"{level:g}"] for content in contents])
        wanted = described.quantile(exact, level).astype(np.float32)
        if name in REAL:
            assert_close(values, wanted)
        else:
            assert (np.abs(values - wanted) <= 1).all()
            assert (values == wanted).mean() > 0.95
