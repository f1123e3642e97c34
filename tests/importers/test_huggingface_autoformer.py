"""Autoformers that transformers itself trained and saved."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from foretell.bundle.manifest import read
from foretell.importers.errors import ImporterError
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

STEPS, HORIZON = 12, 11
SIZES: dict[str, Any] = {
    "context_length": STEPS,
    "prediction_length": HORIZON,
    "label_length": 4,
    "moving_average": 5,
    "lags_sequence": [1, 2, 9, 3],
    "d_model": 16,
    "encoder_attention_heads": 4,
    "encoder_ffn_dim": 24,
    "decoder_ffn_dim": 20,
    "num_parallel_samples": 1,
    # Large enough that lags matter.
    "init_std": 0.1,
}
CONTEXT = STEPS + 9
# With what has to be given; those that are exported and served. The first one's decoder reads more
# steps than its encoder, so that its queries are cut.
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
    "counts": (
        {
            "prediction_length": 5,
            "encoder_layers": 1,
            "decoder_layers": 1,
            "distribution_output": "negative_binomial",
            **STATIC,
        },
        {"static_categorical": "2"},
    ),
}
FURTHER: dict[str, tuple[dict[str, Any], dict[str, str]]] = {
    "several, normal": ({"input_size": 2, "distribution_output": "normal"}, {}),
    "unscaled, one lag": (
        {"scaling": False, "lags_sequence": [7], "activation_function": "relu"},
        {},
    ),
    "deep": ({"decoder_layers": 3, "scaling": "std", "decoder_attention_heads": 8}, {}),
    "odd lengths": ({"context_length": 13, "label_length": 2, "moving_average": 25}, {}),
    "label of all": ({"label_length": STEPS, "autocorrelation_factor": 1}, {}),
    "as long as the horizon": ({"context_length": None, "prediction_length": 8}, {}),
    "static": (
        {"input_size": 2, "num_static_real_features": 2, **STATIC},
        {"static_categorical": "3", "static_real": "0.5,-2"},
    ),
    "counts in several": ({"input_size": 2, "distribution_output": "negative_binomial"}, {}),
}


def make(**changes: Any) -> Any:
    config = transformers.AutoformerConfig(**{**SIZES, **changes})
    return train(transformers.AutoformerForPrediction, config)


def outcome(
    model: Any, history: Tensor, start: str | None = None, category: int = 2
) -> tuple[Tensor, Tensor]:
    """Means and parameters, `[windows, horizon, channels, parameters]`, of the distributions that
    the library draws from, one window at a time: of several it confuses the lags.
    """
    from transformers import time_series_utils

    drawn, known = [], model.output_distribution
    squareplus = time_series_utils.DistributionOutput.squareplus

    def watched(*given: Any, **named: Any) -> Any:
        drawn.append(known(*given, **named))
        return drawn[-1]

    given = asked(model, history, start, future=history, category=category)
    del given["future_values"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(model, "output_distribution", watched)
        # In float32 it keeps no digits of what is far below 0.
        exact = staticmethod(lambda raw: squareplus(raw.double()).float())
        patch.setattr(time_series_utils.DistributionOutput, "squareplus", exact)
        for window in range(len(history)):
            model.generate(**{name: one[window : window + 1] for name, one in given.items()})
    shape = (model.config.prediction_length, model.config.input_size)
    means = [one.mean.reshape(shape) for one in drawn]
    return torch.stack(means), torch.stack([parameters(one).reshape(*shape, -1) for one in drawn])


def parameters(drawn: Any) -> Tensor:
    """Of one of the library's distributions; loc and scale of one that it shifts and scales."""
    if isinstance(found := drawn, torch.distributions.Independent):
        found = drawn.base_dist
    if isinstance(found, torch.distributions.NegativeBinomial):
        return torch.stack([found.total_count, found.logits], dim=-1)
    base, (shift,) = found.base_dist, found.transforms
    base = getattr(base, "base_dist", base)
    names = ("df", "loc", "scale") if hasattr(base, "df") else ("loc", "scale")
    named = {name: getattr(base, name) for name in names}
    named["loc"] = named["loc"] * shift.scale + shift.loc
    named["scale"] = named["scale"] * shift.scale
    return torch.stack(torch.broadcast_tensors(*named.values()), dim=-1)


def assert_near(found: Any, expected: Any) -> None:
    """By a relative 1e-5 of the largest in each window."""
    for one, row in zip(np.asarray(found), np.asarray(expected), strict=True):
        np.testing.assert_allclose(
            one.reshape(row.shape), row, rtol=1e-5, atol=1e-5 * np.abs(row).max(initial=1e-3)
        )


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


def ppf(levels: list[float], said: NDArray[np.float64]) -> list[NDArray[np.float64]]:
    """Quantiles of a Student's t or a negative binomial, by scipy."""
    if said.shape[-1] == 3:
        return [stats.t(*np.moveaxis(said, -1, 0)).ppf(level) for level in levels]
    count, logits = np.moveaxis(said, -1, 0)
    return [stats.nbinom(count, 1 / (1 + np.exp(logits))).ppf(level) for level in levels]


@pytest.mark.parametrize("missing", ["error", "mask"])
@pytest.mark.parametrize("name", SERVED)
def test_the_server_forecasts_what_the_library_does(
    client: Client, models: dict[str, Any], name: str, missing: str
) -> None:
    model = models[name]
    history = windows(CONTEXT, model.config.input_size)
    history = history.abs().round() if name == "counts" else history
    history = history if missing == "error" else lacking(history)
    mean, said = outcome(model, history, "2026-01-01")
    body = {"model": name, **told(history, missing)}
    body["options"]["quantiles"] = [0.1, 0.5, 0.9]
    answer = client.forecast(body)
    assert answer.status_code == 200, answer.text
    contents = [one["content"][0] for one in answer.json()["outputs"]]
    # Where rounding chooses among lags, the server says so.
    clear = [not one.get("ill_conditioned", False) for one in contents]
    assert sum(clear) >= 14
    contents = [one for one, is_clear in zip(contents, clear, strict=True) if is_clear]
    assert_near([one["mean_forecast"] for one in contents], mean[clear])
    wanted = ppf([0.1, 0.5, 0.9], said[clear].double().numpy())
    for level, quantiles in zip(("0.1", "0.5", "0.9"), wanted, strict=True):
        assert_near([one["quantiles"][level] for one in contents], quantiles)


@pytest.mark.parametrize("name", FURTHER)
def test_every_configuration_forecasts_the_same(tmp_path: Path, name: str) -> None:
    changes, given = FURTHER[name]
    model = make(**changes)
    channels = model.config.input_size
    adopted = adopt(save(model, tmp_path / "saved"), given, channels).model
    history = windows(adopted.config.context, channels)
    history = torch.cat([history, lacking(history)])
    mean, said = outcome(model, history, category=3)
    with torch.inference_mode():
        found = adopted.explain(history.reshape(32, -1, channels))
    assert_near(found.forecast, mean)
    for one, wanted in zip(found.distribution.unbind(-1), said.unbind(-1), strict=True):
        assert_near(one, wanted)


def test_a_batch_never_changes_a_forecast(models: dict[str, Any], folders: dict[str, Path]) -> None:
    """As it does in the library."""
    model, adopted = models["dated"], adopt(folders["dated"], DATED, 3).model
    history = windows(CONTEXT, 3)[4:]
    given = asked(model, history, "2026-01-01", future=torch.zeros(12, HORIZON, 3))
    with torch.inference_mode():
        together = model(**given).params[1]
        alone = model(**{name: one[:1] for name, one in given.items()}).params[1]
        calendars = given["past_time_features"], given["future_time_features"]
        found = adopted(history, *calendars)
        lone = adopted(history[:1], *(one[:1] for one in calendars))
    assert (together[0] - alone[0]).abs().max() > 1e-4
    torch.testing.assert_close(found[:1], lone)


def test_the_evidence_is_of_lags(client: Client) -> None:
    manifest = read(client.settings.models / "dated" / "1")
    axes = {
        stage.name: (stage.query.start, stage.query.length, stage.key.start, stage.key.length)
        for stage in manifest.attention
    }
    own, length = (-STEPS, STEPS, -STEPS, STEPS), 4 + HORIZON
    assert axes == {
        "encoder.0.self": own,
        "decoder.0.self": (-4, length, -4, length),
        "decoder.0.cross": (-4, length, -STEPS, length),
    }
    assert {stage.form for stage in manifest.attention} == {"circulant"}
    assert manifest.architecture == "huggingface-autoformer"
    assert manifest.devices == ("cuda", "cpu")
    assert manifest.observed_steps == STEPS
    assert manifest.margin_bound is not None
    assert manifest.distribution is not None
    assert manifest.distribution.family == "student-t"
    assert manifest.verification.passed
    series = windows(CONTEXT, 3)[5].tolist()
    inputs = [{"series": series, "start_timestamp": "2026-01-01T00:00:00"}]
    told = client.first({"model": "dated", "inputs": inputs, "options": {"attention": True}})
    found = {one["name"]: len(one["lags"]) for one in told["attention"]}
    assert found == {"encoder.0.self": 7, "decoder.0.self": 8, "decoder.0.cross": 8}


@pytest.mark.parametrize(
    ("name", "given", "message"),
    [
        ("dated", {}, "num_time_features 2: --time_features has to have as many of second, "),
        ("counts", {}, "num_static_categorical_features 1: --static_categorical has to have"),
        ("counts", {"static_categorical": "4"}, "--static_categorical 4: model.embedder.embedders"),
        ("dated", {**DATED, "num_parallel_samples": "0"}, "--num_parallel_samples: the distributi"),
    ],
)
def test_what_no_folder_tells_is_asked_for(
    folders: dict[str, Path], name: str, given: dict[str, str], message: str
) -> None:
    with pytest.raises(ImporterError) as error:
        adopt(folders[name], given, {"dated": 3, "counts": 1}[name])
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"distribution_output": "poisson"}, "distribution_output 'poisson': Input should be"),
        ({"label_length": 0}, "label_length 0: Input should be greater than or equal to 1"),
        ({"label_length": 13}, "label_length 13: more than the context of 12 steps"),
        ({"moving_average": 4}, "moving_average: expected an odd number, got 4"),
        ({"autocorrelation_factor": 9}, "factor: 9 keeps 22 of the 12 lags at length 12"),
        ({"context_length": 1, "label_length": 1}, "factor: 3 keeps 0 of the 1 lags at length 1"),
        ({"decoder_attention_heads": 3}, "heads: 3 heads do not divide d_model 16"),
        ({"num_dynamic_real_features": 1}, "num_dynamic_real_features 1: Input should be 0"),
        ({"activation_function": "silu"}, "activation_function 'silu': Input should be 'gelu'"),
        ({"minimum_scale": 0.1}, "minimum_scale 0.1: models with 1e-10 are read"),
        ({"embedding_dimension": [4]}, "model.embedder.embedders is [3], expected [4]"),
        ({"embedding_dimension": None}, "model.embedder.embedders is [3], expected [2]"),
    ],
)
def test_what_is_not_read_is_refused_by_its_name(
    folders: dict[str, Path], tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    found = json.loads((folders["counts"] / "config.json").read_bytes())
    (tmp_path / "config.json").write_text(json.dumps(found | changes))
    weights = (folders["counts"] / "model.safetensors").read_bytes()
    (tmp_path / "model.safetensors").write_bytes(weights)
    with pytest.raises(ImporterError) as error:
        adopt(tmp_path, SERVED["counts"][1], 1)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("tensor missing", "missing (1):\n    model.encoder.value_embedding.value_projection"),
        ("other shape", "value_projection.weight is [16, 5], expected [16, 9]"),
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
    check_is_refused(models["counts"], tmp_path, kind, message)
