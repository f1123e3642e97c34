"""A forecast alone is the one that the same history gets in a batch (Nixtla/neuralforecast#1321).

Where a history is flat, or flat to its end, all lags of an auto-correlation tie. Rounding errors of
a level must not decide among them: they differ with the size of the batch.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from numpy.typing import NDArray

from foretell.bundle.scaler import Scaler
from foretell.export.data_windows import synthetic
from foretell.export.graphs import trace_all
from foretell.export.rewrites import inference_form
from foretell.export.runtime import Graph
from foretell.export.verification import verify
from foretell.export.window_set import WindowSet
from foretell.models.architectures.autoformer import AutoformerConfig
from foretell.models.architectures.huggingface_autoformer import HuggingFaceAutoformerConfig
from foretell.models.architectures.itransformer import ITransformerConfig
from foretell.models.architectures.transformer import TransformerConfig
from foretell.models.checkpoint import CheckpointInfo
from foretell.models.config import ForecasterConfig
from foretell.models.forecaster import Forecaster
from tests import golden
from tests.checkpoints import SMALL, randomised

CONTEXT, CHANNELS, AMONG = SMALL["context"], SMALL["channels"], 64
AUTOFORMER: dict[str, Any] = SMALL | {"label": 24, "moving_average": 13}
CORRELATION, FEW = "autocorrelation", {"mechanism": "probsparse", "factor": 1}
CONFIGS = {
    "autoformer": AutoformerConfig(**AUTOFORMER, decoder_layers=2),
    "longer decoder": AutoformerConfig(**AUTOFORMER | {"horizon": 40}),
    "normed": AutoformerConfig(**AUTOFORMER, window_norm="standard"),
    "softmax among them": AutoformerConfig(
        **AUTOFORMER, attention=[CORRELATION, "softmax", CORRELATION]
    ),
    # Normalised channels are equal.
    "probsparse": ITransformerConfig(
        **SMALL | {"channels": 9}, attention=FEW, window_norm="standard"
    ),
}
Floats = NDArray[np.float32]


def noise(random: np.random.Generator, count: int, channels: int) -> NDArray[np.float64]:
    steps = np.arange(CONTEXT)[None, :, None]
    phases = random.uniform(size=(count, 1, channels))
    return np.sin(steps / 3 + 6 * phases) + random.normal(0, 0.5, (count, CONTEXT, channels))


def histories(channels: int) -> dict[str, Floats]:
    """Flat histories, histories that end flat, and histories that hardly vary around a level."""
    random = np.random.default_rng(0)
    levels = np.array([0, 0.1, 1 / 3, -2.7, 20.1, 1013.25])[:, None, None]
    flat = levels * random.uniform(0.5, 1.5, (len(levels), 1, channels))
    flat = flat + np.zeros((1, CONTEXT, 1))
    stuck = noise(random, 3 * len(levels), channels)
    # Flat for longer than a moving average, which must not reach the varying part.
    stuck[:, 12:] = levels.repeat(3, axis=0)
    stuck[1::3] += 25
    stuck[2::3, 12:] = stuck[2::3, 12:13]
    jitter = flat * (1 + 1e-6 * random.normal(size=flat.shape))
    kinds = {"flat": flat, "stuck": stuck, "jitter": jitter}
    return {kind: each.astype(np.float32) for kind, each in kinds.items()}


class Served:
    """A model's graph, and the bound that its export measured."""

    def __init__(self, config: AutoformerConfig | ITransformerConfig, folder: Path) -> None:
        model = randomised(config)
        scaler = Scaler(mean=(0.0,) * config.channels, std=(1.0,) * config.channels)
        for file, graph in trace_all(inference_form(model), scaler).items():
            onnx.save(graph, folder / file)
        self.others = noise(np.random.default_rng(1), AMONG, config.channels).astype(np.float32)
        natural = WindowSet("natural", {"history": self.others})
        verified = verify(model, scaler, folder, natural)
        assert verified.verification.passed
        assert verified.margin_bound is not None
        self.bound = verified.margin_bound
        self.channels = config.channels
        self._graph = Graph(folder / "forecast.onnx")

    def differences(self, history: Floats) -> tuple[float, bool]:
        """Difference of a forecast alone and in a batch, and whether it is marked."""
        alone = self._graph.run({"history": history[None]})
        batch = self.others.copy()
        batch[17] = history
        found = [
            self._graph.run({"history": batch})["forecast"][17],
            *self._graph.run({"history": np.repeat(history[None], AMONG, 0)})["forecast"],
        ]
        error = np.abs(np.stack(found) - alone["forecast"]).max()
        return float(error / max(np.abs(history).max(), 1)), bool(alone["margin"] < self.bound)


@pytest.fixture(scope="module", params=CONFIGS)
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Served:
    return Served(CONFIGS[request.param], tmp_path_factory.mktemp("graphs"))


def test_ties_are_broken_alike_and_marked(served: Served) -> None:
    for history in histories(served.channels)["flat"]:
        error, is_marked = served.differences(history)
        assert is_marked
        assert error <= 1e-5
    # Varying histories have no ties.
    assert not any(served.differences(history)[1] for history in served.others[:4])


@pytest.mark.parametrize("kind", ["stuck", "jitter"])
def test_forecast_that_depends_on_the_batch_is_marked(served: Served, kind: str) -> None:
    for history in histories(served.channels)[kind]:
        error, is_marked = served.differences(history)
        assert is_marked or error <= 1e-5


def a_hundred(info: CheckpointInfo, seed: int) -> Floats:
    """Histories that are flat, or flat in part, `[100, context, channels]` in the user's units."""
    random = np.random.default_rng(seed)
    context, channels = info.config.context, info.config.channels
    scaler = info.scaler.training
    mean, std = np.array(scaler.mean), np.array(scaler.std)
    levels = [0.0, 0.1, 1 / 3, -2.7, 20.1, 1013.25, 1e-4, -1e5, 1.0, 7.0]
    found: list[NDArray[np.float64]] = []
    for level in levels:
        moving = synthetic(info, 1, int(random.integers(2**31))).history[0].astype(np.float64)
        flat = mean + std * level * random.uniform(0.5, 1.5, channels) + 0 * moving
        cut = int(random.integers(context // 8, context - 1))
        late, some = np.arange(context)[:, None] >= cut, np.arange(channels) % 2 == 0
        found += [
            # Flat.
            flat,
            # Equal in all channels.
            level + 0 * moving,
            # Stuck to the end.
            np.where(late, moving[cut], moving),
            # Zero to the end.
            np.where(late, 0, moving),
            # Stuck at the beginning.
            np.where(late, moving, moving[cut]),
            # A level, stuck to the end.
            np.where(late, flat, flat + 1e-3 * (moving - mean)),
            # A step.
            flat + std * late,
            # A spike.
            flat + 10 * std * (np.arange(context)[:, None] == cut),
            # Some channels flat.
            np.where(some, flat, moving),
            # Very small noise on a level.
            flat * (1 + 1e-6 * random.normal(size=flat.shape)),
        ]
    return np.stack(found).astype(np.float32)


def measure(info: CheckpointInfo, model: Forecaster, folder: Path, seed: int = 0) -> float:
    """The largest error of a forecast in a batch that is not marked as `ill_conditioned`.

    An error is the difference to the forecast alone, relative to the largest value of its channel
    or to the channel's standard deviation if that is larger.
    """
    known = synthetic(info, AMONG, seed)
    for file, graph in trace_all(inference_form(model), info.scaler).items():
        onnx.save(graph, folder / file)
    bound = verify(model, info.scaler, folder, known).margin_bound
    served = Graph(folder / "forecast.onnx")
    assert bound is not None
    history = a_hundred(info, seed)
    # Calendar features are those of the synthetic windows.
    windows = WindowSet(
        "flat",
        {n: np.resize(each, (len(history), *each.shape[1:])) for n, each in known.inputs.items()}
        | {"history": history},
    )
    least = np.array(info.target_scaler.training.std)
    at = slice(None) if info.config.targets is None else [*info.config.targets]
    size = np.maximum(np.abs(windows.history[..., at]).max(axis=1), least)
    alone = [served.run(part.inputs) for part in windows.batches(1)]
    margin, forecast = (
        np.concatenate([part[name] for part in alone]) for name in ("margin", "forecast")
    )
    errors = np.zeros(len(windows))
    for order in (np.arange(len(windows)), np.random.default_rng(seed).permutation(len(windows))):
        # All batches have the same size: the last one repeats some of the first windows.
        full = np.resize(order, -(-len(order) // AMONG) * AMONG)
        for part in full.reshape(-1, AMONG):
            batched = served.run(windows.take(part).inputs)["forecast"]
            differences = np.abs(batched.astype(np.float64) - forecast[part]).max(axis=1)
            np.maximum.at(errors, part, (differences / size[part]).max(axis=1))
    return errors[margin >= bound].max(initial=0)


LONG = AUTOFORMER | {"context": 64, "horizon": 32, "label": 32}
# Configurations and seeds of weights.
OTHERS: dict[str, tuple[ForecasterConfig, int]] = {
    # The seasonal part is only rounding errors, which its own deviation scales up.
    "one channel": (
        AutoformerConfig(**LONG | {"channels": 1, "d_model": 8, "moving_average": 25}),
        1,
    ),
    "64 steps": (AutoformerConfig(**LONG), 0),
    "huggingface-autoformer": (
        HuggingFaceAutoformerConfig(**AUTOFORMER | {"context": 60, "value_lags": (1, 2, 7)}),
        0,
    ),
    "probsparse": (CONFIGS["probsparse"], 0),
    "reformer": (
        TransformerConfig(**SMALL, label=24, attention=["reformer", "reformer", "softmax"]),
        0,
    ),
}


@pytest.mark.parametrize("name", OTHERS)
def test_a_hundred_flat_histories_are_forecast_alike_or_marked(name: str, tmp_path: Path) -> None:
    config, seed = OTHERS[name]
    torch.manual_seed(seed)
    names, scaler = tuple("abcdefghi"[: config.channels]), Scaler.identity(config.channels)
    info = CheckpointInfo(config=config, channels=names, frequency="h", scaler=scaler)
    assert measure(info, config.build().eval(), tmp_path, seed) <= 1e-5


@pytest.mark.parametrize("name", ["tslib_autoformer_dec_shorter", "autoformer_official"])
def test_flat_histories_of_published_models_are_forecast_alike_or_marked(
    name: str, tmp_path: Path
) -> None:
    imported = golden.case(name).imported
    assert measure(imported.info, imported.model, tmp_path) <= 1e-5
