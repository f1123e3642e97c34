"""Models that transformers itself trained and saved, whose forecasts are drawn step by step."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from numpy.typing import NDArray
from torch import Tensor

from foretell.bundle.manifest import read
from foretell.commands.import_ import command
from foretell.importers.errors import ImporterError
from foretell.models.layers.paths import levels, places
from tests.importers.huggingface_lagged import (
    DATED,
    STATIC,
    adopt,
    asked,
    check_is_refused,
    run,
    told,
    train,
    windows,
)
from tests.importers.test_huggingface import lacking, save, transformers
from tests.service.client import Client

stats = pytest.importorskip("scipy.stats", reason="what quantiles are compared with")

STEPS, HORIZON, PATHS = 12, 5, 6
SIZES: dict[str, Any] = {
    "context_length": STEPS,
    "prediction_length": HORIZON,
    "num_parallel_samples": PATHS,
    "lags_sequence": [1, 2, 9, 3],
    "d_model": 16,
    "encoder_attention_heads": 4,
    "encoder_ffn_dim": 24,
    "decoder_ffn_dim": 20,
}
CONTEXT = STEPS + 9
# With what has to be given; those that are exported and served.
SERVED: dict[str, tuple[dict[str, Any], dict[str, str]]] = {
    "dated": (
        {
            "input_size": 3,
            "num_time_features": 2,
            "scaling": "std",
            "encoder_layers": 1,
            "decoder_layers": 1,
        },
        DATED,
    ),
    "lone": (
        {"decoder_layers": 1, "encoder_layers": 1, "distribution_output": "normal", **STATIC},
        {"static_categorical": "2", "num_parallel_samples": "0"},
    ),
}
FURTHER: dict[str, tuple[dict[str, Any], dict[str, str]]] = {
    "several": ({"input_size": 2, "activation_function": "relu"}, {}),
    "unscaled": ({"input_size": 3, "scaling": None, "lags_sequence": [7]}, {}),
    "deep": ({"decoder_layers": 3, "scaling": True, "decoder_attention_heads": 8}, {}),
    "as long as the horizon": ({"context_length": None, "lags_sequence": [2, 5]}, {}),
    "normal": ({"distribution_output": "normal", "scaling": "std", "decoder_layers": 1}, {}),
    "static": (
        {"input_size": 2, "num_static_real_features": 2, **STATIC},
        {"static_categorical": "3", "static_real": "0.5,-2"},
    ),
}


def make(**changes: Any) -> Any:
    config = transformers.TimeSeriesTransformerConfig(**{**SIZES, **changes})
    return train(transformers.TimeSeriesTransformerForPrediction, config)


def path(
    model: Any,
    history: Tensor,
    start: str | None = None,
    category: int = 2,
    levels: NDArray[np.float64] | None = None,
) -> Tensor:
    """Quantiles of these levels of the library's own distributions, each given as the truth to the
    steps after it; means if there are none.
    """
    config = model.config
    future = torch.zeros(len(history), config.prediction_length, *history.shape[2:])
    for step in range(config.prediction_length):
        given = asked(model, history, start, future=future, category=category)
        with torch.inference_mode():
            found = model(**given)
        if levels is None:
            drawn = model.output_distribution(found.params, loc=found.loc, scale=found.scale)
            future[:, step] = drawn.mean[:, step]
        else:
            *df, loc, scale = (one[:, step].double().numpy() for one in found.params)
            known = stats.t(*df, loc, scale) if df else stats.norm(loc, scale)
            value = torch.tensor(known.ppf(levels[step]))
            shape = future[:, step].shape
            value = value * found.scale.reshape(shape) + found.loc.reshape(shape)
            future[:, step] = value.float()
    return future


def paths(model: Any, history: Tensor, start: str | None = None, category: int = 2) -> Tensor:
    """As many as are drawn, each step by itself in ascending order, `[paths, windows, …]`."""
    channels = model.config.input_size
    orders = np.array(places(HORIZON * channels, PATHS)).reshape(HORIZON, channels, PATHS)
    known = np.array(levels(PATHS))[orders]
    found = [path(model, history, start, category, known[..., one]) for one in range(PATHS)]
    return torch.stack(found).sort(dim=0).values


@pytest.fixture(scope="module")
def models() -> dict[str, Any]:
    return {name: make(**changes) for name, (changes, _) in SERVED.items()}


@pytest.fixture(scope="module")
def folders(models: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("folders")
    return {name: save(model, root / name) for name, model in models.items()}


@pytest.fixture(scope="module")
def client(
    models: dict[str, Any], folders: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Client]:
    root = tmp_path_factory.mktemp("bundles")
    for name, folder in folders.items():
        given = [f"--{option}={value}" for option, value in SERVED[name][1].items()]
        channels = models[name].config.input_size
        done = run(folder, root / "out" / name, channels, "--to", str(root / "models"), *given)
        assert done.exit_code == 0, done.output
    with Client(root / "models") as client:
        yield client


@pytest.mark.parametrize("missing", ["error", "mask"])
@pytest.mark.parametrize("name", SERVED)
def test_the_server_forecasts_what_the_library_does(
    client: Client, models: dict[str, Any], name: str, missing: str
) -> None:
    model = models[name]
    history = windows(CONTEXT, model.config.input_size)
    history = history if missing == "error" else lacking(history)
    mean = path(model, history, "2026-01-01") if name == "lone" else None
    if mean is None:
        mean = paths(model, history, "2026-01-01").mean(dim=0)
    expected = mean.reshape(16, HORIZON, -1).numpy()
    answer = client.forecast({"model": name, **told(history, missing)})
    assert answer.status_code == 200, answer.text
    contents = [one["content"][0] for one in answer.json()["outputs"]]
    for found, row in zip(contents, expected, strict=True):
        np.testing.assert_allclose(
            np.reshape(found["mean_forecast"], row.shape),
            row,
            rtol=1e-5,
            atol=1e-5 * np.abs(row).max(initial=1e-3),
        )


@pytest.mark.parametrize("name", FURTHER)
def test_every_configuration_forecasts_the_same(tmp_path: Path, name: str) -> None:
    changes, given = FURTHER[name]
    model = make(**changes)
    channels = model.config.input_size
    adopted = adopt(save(model, tmp_path / "saved"), given, channels).model
    history = windows(adopted.config.context, channels)
    history = torch.cat([history, lacking(history)])
    expected = paths(model, history, category=3).reshape(PATHS, 32, HORIZON, channels)
    with torch.inference_mode():
        found = adopted.explain(history.reshape(32, -1, channels))
    torch.testing.assert_close(
        found.distribution, expected.permute(1, 2, 3, 0), rtol=1e-5, atol=1e-5
    )
    plain = adopt(tmp_path / "saved", {**given, "num_parallel_samples": "0"}, channels).model
    expected = path(model, history, category=3).reshape(32, HORIZON, channels)
    with torch.inference_mode():
        torch.testing.assert_close(
            plain(history.reshape(32, -1, channels)), expected, rtol=1e-5, atol=1e-5
        )


def test_quantiles_are_those_of_the_paths(client: Client, models: dict[str, Any]) -> None:
    history = windows(CONTEXT, 3)
    expected = paths(models["dated"], history, "2026-01-01").numpy()
    inputs = [
        {"series": rows.tolist(), "start_timestamp": "2026-01-01T00:00:00"} for rows in history
    ]
    # The second path and the fifth, and half way from the third to the fourth.
    body = {"model": "dated", "inputs": inputs, "options": {"quantiles": [0.25, 0.75, 0.5]}}
    answer = client.forecast(body)
    assert answer.status_code == 200, answer.text
    contents = [one["content"][0]["quantiles"] for one in answer.json()["outputs"]]
    for level, wanted in (
        ("0.25", expected[1]),
        ("0.75", expected[4]),
        ("0.5", expected[2:4].mean(axis=0)),
    ):
        found = np.array([one[level] for one in contents])
        largest = np.abs(wanted).max(axis=(1, 2), keepdims=True)
        np.testing.assert_allclose(found / largest, wanted / largest, rtol=0, atol=1e-5)


def test_levels_beyond_the_outermost_paths_are_refused(client: Client) -> None:
    series = windows(CONTEXT, 3)[5].tolist()
    inputs = [{"series": series, "start_timestamp": "2026-01-01T00:00:00"}]
    body = {"model": "dated", "inputs": inputs, "options": {"quantiles": [0.05]}}
    error = client.error(body)
    assert error["param"] == "options.quantiles[0]"
    assert "expected a level between 0.0833333 and 0.916667, got 0.05" in error["message"]


def test_the_evidence_is_of_the_steps_of_encoder_and_horizon(client: Client) -> None:
    manifest = read(client.settings.models / "dated" / "1")
    axes = {
        stage.name: (stage.query.start, stage.query.length, stage.key.start, stage.key.length)
        for stage in manifest.attention
    }
    own, cross = (0, HORIZON, 0, HORIZON), (0, HORIZON, -STEPS, STEPS)
    assert axes == {
        "encoder.0.self": (-STEPS, STEPS, -STEPS, STEPS),
        "decoder.0.self": own,
        "decoder.0.cross": cross,
    }
    assert manifest.architecture == "huggingface-time-series-transformer"
    assert manifest.context == CONTEXT
    assert manifest.calendar is not None
    assert manifest.calendar.features == ("hour", "day_of_week")
    assert manifest.devices == ("cuda", "cpu")
    assert manifest.observed_steps == STEPS
    assert manifest.distribution is not None
    assert manifest.distribution.levels == levels(PATHS)
    assert manifest.verification.passed


def test_quantiles_are_refused_without_data(client: Client) -> None:
    rows = windows(CONTEXT, 1)[5, :, None].tolist()
    body = {"model": "lone", "inputs": [{"series": rows}], "options": {"quantiles": [0.5]}}
    message = client.error(body)["message"]
    assert "lone has no quantiles: it was exported without the data" in message


def test_weights_of_a_pickle_are_read(
    folders: dict[str, Path], models: dict[str, Any], tmp_path: Path
) -> None:
    (tmp_path / "config.json").write_bytes((folders["lone"] / "config.json").read_bytes())
    torch.save(models["lone"].state_dict(), tmp_path / "pytorch_model.bin")
    given = SERVED["lone"][1]
    one, other = (adopt(folder, given, 1).model for folder in (tmp_path, folders["lone"]))
    torch.testing.assert_close(one.state_dict(), other.state_dict(), rtol=0, atol=0)


def test_says_where_each_argument_comes_from(folders: dict[str, Path]) -> None:
    arguments = adopt(folders["lone"], SERVED["lone"][1], 1).arguments
    assert arguments["d_model"] == (16, "config.json")
    assert arguments["static_categorical"] == ("2", "--static_categorical")


@pytest.mark.parametrize(
    ("name", "given", "message"),
    [
        ("dated", {}, "num_time_features 2: --time_features has to have as many of second, "),
        ("dated", {"time_features": "hour"}, "as many of second, minute"),
        ("dated", {"time_features": "hour,age"}, "--time_features age: how old a series is"),
        ("dated", {"time_features": "hour,moon"}, "--time_features moon: expected some of second"),
        ("lone", {"static_categorical": "2", "time_features": "hour"}, "num_time_features 0: "),
        ("lone", {}, "num_static_categorical_features 1: --static_categorical has to have"),
        ("lone", {"static_categorical": "2", "static_real": "1"}, "num_static_real_features 0: "),
        ("dated", {**DATED, "num_parallel_samples": "x"}, "--num_parallel_samples x: expected 0"),
        ("dated", {**DATED, "num_parallel_samples": "1"}, "--num_parallel_samples 1: expected 0"),
        ("lone", {"static_categorical": "x"}, "--static_categorical or --static_real: invalid"),
        ("lone", {"static_categorical": "4"}, "--static_categorical 4: model.embedder.embedders.0"),
        ("lone", {"static_categorical": "-1"}, "weight has rows 0 to 3"),
    ],
)
def test_what_no_folder_tells_is_asked_for(
    folders: dict[str, Path], name: str, given: dict[str, str], message: str
) -> None:
    with pytest.raises(ImporterError) as error:
        adopt(folders[name], given, {"dated": 3, "lone": 1}[name])
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"distribution_output": "negative_binomial"}, "distribution_output 'negative_binomial': "),
        ({"num_dynamic_real_features": 1}, "num_dynamic_real_features 1: Input should be 0"),
        ({"loss": "mse"}, "loss 'mse': Input should be 'nll'"),
        ({"lags_sequence": [0, 1]}, "lags_sequence.0 0: Input should be greater than"),
        ({"lags_sequence": []}, "lags_sequence []: List should have at least 1 item"),
        ({"prediction_length": None}, "prediction_length None: Input should be a valid integer"),
        ({"prediction_length": 65}, "horizon: 65 steps, each of which is decoded by itself"),
        ({"decoder_attention_heads": 3}, "heads: 3 heads do not divide d_model 16"),
        ({"activation_function": "silu"}, "activation_function 'silu': Input should be 'gelu'"),
        ({"num_parallel_samples": -1}, "num_parallel_samples -1: Input should be greater than"),
        ({"minimum_scale": 0.1}, "minimum_scale 0.1: models with 1e-10 are read"),
    ],
)
def test_what_is_not_read_is_refused_by_its_name(
    folders: dict[str, Path], tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    found = json.loads((folders["lone"] / "config.json").read_bytes())
    (tmp_path / "config.json").write_text(json.dumps(found | changes))
    with pytest.raises(ImporterError) as error:
        adopt(tmp_path, SERVED["lone"][1], 1)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("tensor missing", "missing (1):\n    model.encoder.value_embedding.value_projection"),
        ("other shape", "value_projection.weight is [16, 5], expected [16, 6]"),
        ("not finite", "value_projection.weight has values that are not finite"),
        ("no table", "model.embedder.embedders.0.weight: no table of static features"),
        ("no weights", "neither model.safetensors nor pytorch_model.bin is there"),
        ("cut off", "model.safetensors: damaged or cut off"),
        ("pickle that runs code", "refused: loading it would call posix.mkdir"),
    ],
)
def test_a_broken_folder_is_refused_and_nothing_written(
    models: dict[str, Any], tmp_path: Path, kind: str, message: str
) -> None:
    check_is_refused(models["lone"], tmp_path, kind, message)


def test_options_of_folders_are_of_these_folders_alone(tmp_path: Path) -> None:
    file = tmp_path / "checkpoint.pth"
    file.touch()
    for source, message in (
        ("tslib", "--time_features: of folders by --from huggingface alone"),
        ("neuralforecast", "is no folder, which --from neuralforecast reads"),
    ):
        given = ["--from", source, "--time_features", "hour", "--out", str(tmp_path / "out")]
        done = CliRunner().invoke(command, [str(file), *given])
        assert done.exit_code == 2
        assert message in done.stderr
