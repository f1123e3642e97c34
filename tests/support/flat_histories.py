"""Whether forecasts of flat histories depend on their batch.

A hundred histories that are flat, or flat in part, are forecast alone and among 64 by models with
random weights that choose, and by the published Autoformers that lie next to the repository, if
they do.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
import torch
from numpy.typing import NDArray

from foretell.bundle.manifest import Scaler
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
from foretell.models.forecaster import Forecaster, ForecasterConfig
from tests import golden
from tests.checkpoints import HOURLY, SMALL

# The largest error that needs no warning, relative to the size of the channel.
LARGEST = 1e-5
AMONG = 64
Floats = NDArray[np.float32]

_SIZES: dict[str, Any] = SMALL
_AUTOFORMER = _SIZES | {"label": 24, "moving_average": 13}
_LONG = _AUTOFORMER | {"context": 64, "horizon": 32, "label": 32}
_CORRELATION = "autocorrelation"
_NORMS = ("mean", "last", "standard", "magnitude", "robust", "invariant", "minmax")
OWN: dict[str, ForecasterConfig] = {
    "Autoformer": AutoformerConfig(**_AUTOFORMER, decoder_layers=2),
    "Autoformer, longer decoder": AutoformerConfig(**_AUTOFORMER | {"horizon": 40}),
    "Autoformer, 64 steps": AutoformerConfig(**_LONG),
    "Autoformer, 64 steps, one channel": AutoformerConfig(
        **_LONG | {"channels": 1, "d_model": 8, "moving_average": 25}
    ),
    "Autoformer, 96 steps, two layers": AutoformerConfig(
        **_AUTOFORMER | {"context": 96, "horizon": 48, "label": 48, "encoder_layers": 2}
    ),
    "Autoformer, 73 steps": AutoformerConfig(**_LONG | {"context": 73, "horizon": 25}),
    "Autoformer, 96 steps, calendar": AutoformerConfig(
        **_LONG | {"context": 96, "moving_average": 25}, calendar=HOURLY
    ),
    "Autoformer, softmax among its layers": AutoformerConfig(
        **_LONG, attention=[_CORRELATION, "softmax", _CORRELATION]
    ),
    **{f"Autoformer, {norm}": AutoformerConfig(**_LONG, window_norm=norm) for norm in _NORMS},
    "huggingface-autoformer": HuggingFaceAutoformerConfig(
        **_AUTOFORMER | {"context": 60, "value_lags": (1, 2, 7)}
    ),
    "iTransformer, probsparse": ITransformerConfig(
        **_SIZES | {"channels": 9},
        attention={"mechanism": "probsparse", "factor": 1},
        window_norm="standard",
    ),
    "Transformer, reformer": TransformerConfig(
        **_SIZES, label=24, attention=["reformer", "reformer", "softmax"]
    ),
    "Transformer, routing": TransformerConfig(
        **_SIZES, label=24, attention=["routing", "softmax", "softmax"]
    ),
}


class Subject(NamedTuple):
    """A model, and what is known of it."""

    name: str
    info: CheckpointInfo
    model: Forecaster


class Found(NamedTuple):
    """The forecasts of some histories, alone and among others.

    Attributes:
        marked: `[histories]`, whether the server marks the answer as `ill_conditioned`.
        errors: `[histories]`, the largest difference between a forecast alone and among others, of
            the largest value of its channel or of what that deviates by, which is larger.
        kinds: What each is.
    """

    marked: NDArray[np.bool_]
    errors: NDArray[np.float64]
    kinds: list[str]

    @property
    def unmarked(self) -> NDArray[np.float64]:
        """The errors of answers that are not marked."""
        return self.errors[~self.marked]


def own(seed: int = 0) -> Iterator[Subject]:
    """Models with random weights."""
    for name, config in OWN.items():
        torch.manual_seed(seed)
        names = tuple(f"channel {place}" for place in range(config.channels))
        scaler = Scaler.identity(config.channels)
        info = CheckpointInfo(config=config, channels=names, frequency="h", scaler=scaler)
        yield Subject(f"{name}, seed {seed}", info, config.build().eval())


def published() -> Iterator[Subject]:
    """Those of the published code, where its numbers lie next to the repository."""
    if (golden.SHARED / "golden").exists():
        for name in golden.AUTOFORMERS:
            imported = golden.case(name).imported
            yield Subject(name, imported.info, imported.model)


def histories(info: CheckpointInfo, seed: int) -> list[tuple[str, Floats]]:
    """A hundred, each `[context, channels]` in the user's units."""
    random = np.random.default_rng(seed)
    context, channels = info.config.context, info.config.channels
    scaler = info.scaler.training
    mean, std = np.array(scaler.mean), np.array(scaler.std)
    levels = [0.0, 0.1, 1 / 3, -2.7, 20.1, 1013.25, 1e-4, -1e5, 1.0, 7.0]
    found: list[tuple[str, NDArray[np.float64]]] = []
    for level in levels:
        moving = synthetic(info, 1, int(random.integers(2**31))).history[0].astype(np.float64)
        flat = mean + std * level * random.uniform(0.5, 1.5, channels) + 0 * moving
        cut = int(random.integers(context // 8, context - 1))
        late, some = np.arange(context)[:, None] >= cut, np.arange(channels) % 2 == 0
        found += [
            ("flat", flat),
            ("the same in all channels", level + 0 * moving),
            ("stuck to the end", np.where(late, moving[cut], moving)),
            ("zero to the end", np.where(late, 0, moving)),
            ("stuck at the beginning", np.where(late, moving, moving[cut])),
            ("a level, stuck to the end", np.where(late, flat, flat + 1e-3 * (moving - mean))),
            ("a step", flat + std * late),
            ("a spike", flat + 10 * std * (np.arange(context)[:, None] == cut)),
            ("some channels flat", np.where(some, flat, moving)),
            ("hardly anything on a level", flat * (1 + 1e-6 * random.normal(size=flat.shape))),
        ]
    return [(kind, history.astype(np.float32)) for kind, history in found]


def measure(subject: Subject, seed: int = 0) -> Found:
    """Forecast histories alone and among others."""
    info, model = subject.info, subject.model
    known = synthetic(info, AMONG, seed)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for file, graph in trace_all(inference_form(model), info.scaler).items():
            onnx.save(graph, folder / file)
        bound = verify(model, info.scaler, folder, known).margin_bound
        served = Graph(folder / "forecast.onnx")
    assert bound is not None
    kinds, asked = zip(*histories(info, seed), strict=True)
    windows = _with_calendar(known, np.stack(asked))
    least = np.array(info.target_scaler.training.std)
    at = slice(None) if info.config.targets is None else [*info.config.targets]
    size = np.maximum(np.abs(windows.history[..., at]).max(axis=1), least)
    alone = [served.run(part.inputs) for part in windows.batches(1)]
    margin, forecast = (
        np.concatenate([part[name] for part in alone]) for name in ("margin", "forecast")
    )
    errors = np.zeros(len(windows))
    for order in (np.arange(len(windows)), np.random.default_rng(seed).permutation(len(windows))):
        # As many in every batch: the last one has some of the first again.
        full = np.resize(order, -(-len(order) // AMONG) * AMONG)
        for part in full.reshape(-1, AMONG):
            among = served.run(windows.take(part).inputs)["forecast"]
            differences = np.abs(among.astype(np.float64) - forecast[part]).max(axis=1)
            np.maximum.at(errors, part, (differences / size[part]).max(axis=1))
    return Found(margin < bound, errors, list(kinds))


def _with_calendar(known: WindowSet, history: Floats) -> WindowSet:
    """The histories at times of windows that are known."""
    past, future = (
        None if each is None else np.resize(each, (len(history), *each.shape[1:]))
        for each in (known.history_calendar, known.future_calendar)
    )
    return WindowSet("flat", history, past, future)
