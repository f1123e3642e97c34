"""A forecast alone is the one that the same history gets in a batch (Nixtla/neuralforecast#1321).

Where a history is flat, or flat to its end, all lags of an auto-correlation tie. What rounding
leaves of a level must not choose among them: it is another in a batch of another size.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray

from foretell.bundle.manifest import Scaler
from foretell.export.graphs import trace_all
from foretell.export.rewrites import inference_form
from foretell.export.runtime import Graph
from foretell.export.verification import verify
from foretell.export.window_set import WindowSet
from foretell.models.architectures.autoformer import AutoformerConfig
from foretell.models.architectures.itransformer import ITransformerConfig
from tests import golden
from tests.checkpoints import SMALL, randomised
from tests.support import flat_histories

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
    # Channels are alike once each is normalised.
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
    """Flat ones, those that are flat to their end, and those that hardly vary around a level."""
    random = np.random.default_rng(0)
    levels = np.array([0, 0.1, 1 / 3, -2.7, 20.1, 1013.25])[:, None, None]
    flat = levels * random.uniform(0.5, 1.5, (len(levels), 1, channels))
    flat = flat + np.zeros((1, CONTEXT, 1))
    stuck = noise(random, 3 * len(levels), channels)
    # To where no moving average reaches back to what varies.
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
        natural = WindowSet("natural", self.others, None, None)
        verified = verify(model, scaler, folder, natural)
        assert verified.verification.passed
        assert verified.margin_bound is not None
        self.bound = verified.margin_bound
        self.channels = config.channels
        self._graph = Graph(folder / "forecast.onnx")

    def differences(self, history: Floats) -> tuple[float, bool]:
        """How much a forecast depends on its batch, and whether an answer says so."""
        alone = self._graph.run((history[None],))
        among = self.others.copy()
        among[17] = history
        found = [
            self._graph.run((among,))["forecast"][17],
            *self._graph.run((np.repeat(history[None], AMONG, 0),))["forecast"],
        ]
        error = np.abs(np.stack(found) - alone["forecast"]).max()
        return float(error / max(np.abs(history).max(), 1)), bool(alone["margin"] < self.bound)


@pytest.fixture(scope="module", params=CONFIGS)
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Served:
    return Served(CONFIGS[request.param], tmp_path_factory.mktemp("graphs"))


def test_ties_are_broken_in_one_way_and_told(served: Served) -> None:
    for history in histories(served.channels)["flat"]:
        error, told = served.differences(history)
        assert told
        assert error <= 1e-5
    # What varies is no tie.
    assert not any(served.differences(history)[1] for history in served.others[:4])


@pytest.mark.parametrize("kind", ["stuck", "jitter"])
def test_what_depends_on_the_batch_is_told(served: Served, kind: str) -> None:
    for history in histories(served.channels)[kind]:
        error, told = served.differences(history)
        assert told or error <= 1e-5


@pytest.mark.parametrize(
    ("name", "seed"),
    [
        # A seasonal part that is rounding alone is divided by what is left of its deviation.
        ("Autoformer, 64 steps, one channel", 1),
        ("Autoformer, 64 steps", 0),
        ("huggingface-autoformer", 0),
        ("iTransformer, probsparse", 0),
        ("Transformer, reformer", 0),
    ],
)
def test_a_hundred_flat_histories_are_forecast_alike_or_told(name: str, seed: int) -> None:
    found = flat_histories.measure(
        next(each for each in flat_histories.own(seed) if each.name == f"{name}, seed {seed}")
    )
    assert len(found.marked) == 100
    assert found.unmarked.max(initial=0) <= flat_histories.LARGEST


@pytest.mark.parametrize("name", ["tslib_autoformer_dec_shorter", "autoformer_official"])
def test_so_are_they_by_published_models(name: str) -> None:
    imported = golden.case(name).imported
    found = flat_histories.measure(flat_histories.Subject(name, imported.info, imported.model))
    assert found.unmarked.max(initial=0) <= flat_histories.LARGEST
