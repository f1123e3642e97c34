"""Distributions and quantiles that NeuralForecast has trained, up to the answers of a server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from foretell.bundle.distribution import Distribution
from foretell.importers.arguments import Argument
from foretell.importers.neuralforecast import read
from foretell.models.forecaster import Explained, Inputs
from tests.neuralforecast import (
    CHANNELS,
    HORIZON,
    PATCHES,
    STEPS,
    TOLD,
    Floats,
    adopt,
    assert_close,
    by_series,
    inputs,
    train,
    walks,
    windows,
)
from tests.service.client import Client


def of(distribution: str) -> dict[str, Any]:
    """A loss whose parameters the library says after mean and quantiles."""
    given = {"distribution": distribution, "return_params": True, "num_samples": 2, "level": [80]}
    return {"loss": ("DistributionLoss", given)}


# Of those that are served: exports take their time.
ONE = {"encoder_layers": 1}
# By alias: the class and its arguments.
REAL: dict[str, tuple[str, dict[str, Any]]] = {
    "normal": ("PatchTST", PATCHES | ONE | {"scaler_type": "robust", "revin_affine": True}),
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
RATED: dict[str, tuple[str, dict[str, Any]]] = {
    "rates": ("PatchTST", PATCHES | ONE | {"scaler_type": "robust"} | of("Poisson")),
    "unscaled": ("DLinear", {"moving_avg_window": 5} | of("Poisson")),
}
COUNTS = COUNTED | RATED
# Three each, of which the second in order is the first that the library says.
LEVELS: dict[str, tuple[str, dict[str, Any]]] = {
    "levels": (
        "PatchTST",
        PATCHES | ONE | {"scaler_type": "minmax1", "loss": ("MQLoss", {"level": [80]})},
    ),
    "huber": (
        "Autoformer",
        STEPS
        | {"scaler_type": "standard", "factor": 2, "MovingAvg_window": 5}
        | {"loss": ("HuberMQLoss", {"quantiles": [0.5, 0.2, 0.7]})},
    ),
    "sines": (
        "DLinear",
        {"moving_avg_window": 5, "scaler_type": "invariant", "loss": ("MQLoss", {"level": [80]})},
    ),
}
IMPLICIT: dict[str, tuple[str, dict[str, Any]]] = {
    "implicit": ("PatchTST", PATCHES | ONE | {"scaler_type": "robust", "loss": ("IQLoss", {})}),
    "within": ("PatchTST", PATCHES | {"loss": ("IQLoss", {"cos_embedding_dim": 8})}),
    "sine": (
        "DLinear",
        {"moving_avg_window": 5, "scaler_type": "invariant", "loss": ("HuberIQLoss", {})},
    ),
    "together": ("iTransformer", CHANNELS | {"scaler_type": "minmax1", "loss": ("IQLoss", {})}),
}
MODELS = REAL | COUNTS | LEVELS | IMPLICIT
SERVED = ("normal", "channels", "counts", "rates", "levels", "implicit")
ASKED = (0.05, 0.5, 0.9)
ASKED_FOR = ",".join(map(str, TOLD))


def asked(name: str) -> Floats:
    """The windows, of counts without the negative values that the library refuses."""
    return np.abs(windows()).round() if name in COUNTS else windows()


@pytest.fixture(scope="module")
def library(
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[dict[str, Path], dict[str, Floats]]:
    """The folder of each model, and its parameters of every window, `[16, horizon, parameters]`."""
    folders, found = {}, {}
    for models, offset in ((REAL | LEVELS | IMPLICIT, 10.0), (COUNTS, 50.0)):
        folder = tmp_path_factory.mktemp("saved") / "nf"
        values = walks(offset).round() if models is COUNTS else walks(offset)
        found |= train(models, values, asked(next(iter(models))), folder)
        folders |= dict.fromkeys(models, folder)
    own = {
        # The mean and the ends and middle of an interval, which are drawn, come first.
        alias: columns[..., [1, 0, 2]] if alias in LEVELS else columns[..., 4:]
        for alias, columns in found.items()
        if alias not in IMPLICIT
    }
    own |= {alias: found[alias] for alias in IMPLICIT}
    return folders, own


def explained(folders: dict[str, Path], name: str) -> tuple[Explained, Distribution]:
    given = {"levels": Argument(ASKED_FOR, "--levels")} if name in IMPLICIT else {}
    model = read(folders[name], f"{name}_0", given).model
    assert model.head is not None
    given = torch.from_numpy(inputs(MODELS[name][0], asked(name)).copy())
    with torch.inference_mode():
        return model.predict(Inputs(given)), model.head.described


def steady(name: str) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Where rounding does not choose the lags of an Autoformer."""
    found = np.ones(16, bool)
    found[[3, 4, 6]] = MODELS[name][0] != "Autoformer"
    return found


@pytest.mark.parametrize("name", REAL | RATED)
def test_parameters_are_the_librarys(
    library: tuple[dict[str, Path], dict[str, Floats]], name: str
) -> None:
    found, described = explained(library[0], name)
    assert found.distribution is not None
    expected = library[1][name][steady(name)]
    assert expected.shape[2] == len(described.parameters)
    assert_close(by_series(found.distribution.numpy())[steady(name)], expected)
    mean = expected[..., -1 if name in RATED else -2]
    assert_close(by_series(found.forecast.numpy())[steady(name)], mean)


@pytest.mark.parametrize("name", LEVELS | IMPLICIT)
def test_quantiles_are_the_librarys(
    library: tuple[dict[str, Path], dict[str, Floats]], name: str
) -> None:
    found, described = explained(library[0], name)
    assert found.distribution is not None
    usual = TOLD if name in IMPLICIT else (0.1, 0.5, 0.9)
    assert described.levels == ((0.2, 0.5, 0.7) if name == "huber" else usual)
    expected = library[1][name][steady(name)]
    assert_close(by_series(found.distribution.numpy())[steady(name)], expected)
    median = expected[..., described.levels.index(0.5)]
    assert_close(by_series(found.forecast.numpy())[steady(name)], median)


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
        others = ("--levels", ASKED_FOR) if name in IMPLICIT else ()
        said = adopt(library[0][name], name, repository, *others)
        loss = MODELS[name][1]["loss"][0]
        assert (f"{loss} of " in said) == (name not in IMPLICIT)
        assert (ASKED_FOR in said) == (name in IMPLICIT)
        assert loss in said
    with Client(repository) as client:
        yield client


def request(name: str, levels: tuple[float, ...]) -> dict[str, Any]:
    rows = [
        {"series": window.tolist(), "start_timestamp": "2024-01-01T00:00:00"}
        for window in inputs(MODELS[name][0], asked(name))
    ]
    return {"model": name, "inputs": rows, "options": {"quantiles": list(levels)}}


@pytest.mark.parametrize("name", SERVED)
def test_quantiles_over_http(
    client: Client, library: tuple[dict[str, Path], dict[str, Floats]], name: str
) -> None:
    levels = (0.1, 0.3, 0.5, 0.9) if name in LEVELS | IMPLICIT else ASKED
    answer = client.forecast(request(name, levels))
    assert answer.status_code == 200, answer.text
    contents = [output["content"][0] for output in answer.json()["outputs"]]
    found, described = explained(library[0], name)
    assert found.distribution is not None

    def told(values: list[object]) -> Floats:
        return by_series(np.array(values, np.float32).reshape(len(contents), HORIZON, -1))

    assert_close(
        told([content["mean_forecast"] for content in contents]),
        by_series(found.forecast.numpy()),
    )
    # Of counts the library's shares are rounded, and a count may be the next one.
    exact = by_series(found.distribution.numpy()) if name in COUNTED else library[1][name]
    for level in levels:
        values = told([content["quantiles"][f"{level:g}"] for content in contents])
        wanted = described.quantile(exact, level).astype(np.float32)
        if name not in COUNTS:
            assert_close(values, wanted)
        else:
            assert (np.abs(values - wanted) <= 1).all()
            assert (values == wanted).mean() > 0.95
        if name in LEVELS and level == 0.3:
            low, middle, _ = np.sort(exact, axis=-1).swapaxes(0, -1)
            assert_close(values, ((low + middle) / 2).swapaxes(0, 1))


def test_no_quantile_is_told_beyond_those_that_were_trained(client: Client) -> None:
    error = client.error(request("levels", (0.5, 0.95)))
    assert error["message"] == (
        "expected a level between 0.1 and 0.9, got 0.95: it forecasts no quantile "
        "that is further out"
    )
