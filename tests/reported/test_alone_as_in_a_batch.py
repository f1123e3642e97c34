"""A forecast alone is the one that the same history gets in a batch (Nixtla/neuralforecast#1321).

Where a history is flat, or flat to its end, all lags of an auto-correlation tie. What rounding
leaves of a level must not choose among them: it is another in a batch of another size.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
import pytest
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
from tests.checkpoints import SMALL, randomised

# The largest error that needs no warning, relative to the size of the channel.
LARGEST = 1e-5
AMONG = 64
AUTOFORMER: dict[str, Any] = SMALL | {"label": 24, "moving_average": 13}
LONG = AUTOFORMER | {"context": 64, "horizon": 32, "label": 32}
CORRELATION, FEW = "autocorrelation", {"mechanism": "probsparse", "factor": 1}
PROBSPARSE = ITransformerConfig(**SMALL | {"channels": 9}, attention=FEW, window_norm="standard")
# Each with the seed of its weights, if not all of them are to show in the forecast.
CONFIGS: dict[str, tuple[ForecasterConfig, int | None]] = {
    "autoformer": (AutoformerConfig(**AUTOFORMER, decoder_layers=2), None),
    "longer decoder": (AutoformerConfig(**AUTOFORMER | {"horizon": 40}), None),
    "normed": (AutoformerConfig(**AUTOFORMER, window_norm="standard"), None),
    "softmax among them": (
        AutoformerConfig(**AUTOFORMER, attention=[CORRELATION, "softmax", CORRELATION]),
        None,
    ),
    # Channels are alike once each is normalised.
    "probsparse": (PROBSPARSE, None),
    # A seasonal part that is rounding alone is divided by what is left of its deviation.
    "one channel": (
        AutoformerConfig(**LONG | {"channels": 1, "d_model": 8, "moving_average": 25}),
        1,
    ),
    "64 steps": (AutoformerConfig(**LONG), 0),
    "huggingface-autoformer": (
        HuggingFaceAutoformerConfig(**AUTOFORMER | {"context": 60, "value_lags": (1, 2, 7)}),
        0,
    ),
    "probsparse, other weights": (PROBSPARSE, 0),
    "reformer": (
        TransformerConfig(**SMALL, label=24, attention=["reformer", "reformer", "softmax"]),
        0,
    ),
}
Floats = NDArray[np.float32]


class Found(NamedTuple):
    """Forecasts of a hundred histories, alone and in batches.

    Attributes:
        kinds: What each history is.
        marked: Whether the server marks the answer as `ill_conditioned`.
        errors: The largest difference between a forecast alone and in a batch, of the largest
            value of its channel or of what that deviates by, which is larger.
        ordinary: Whether it marks any of some histories that vary.
    """

    kinds: NDArray[np.str_]
    marked: NDArray[np.bool_]
    errors: NDArray[np.float64]
    ordinary: bool


def histories(info: CheckpointInfo, seed: int) -> list[tuple[str, Floats]]:
    """A hundred that are flat, or flat in part, each `[context, channels]`."""
    random = np.random.default_rng(seed)
    context, channels = info.config.context, info.config.channels
    scaler = info.scaler.training
    mean, std = np.array(scaler.mean), np.array(scaler.std)
    found: list[tuple[str, NDArray[np.float64]]] = []
    for level in (0.0, 0.1, 1 / 3, -2.7, 20.1, 1013.25, 1e-4, -1e5, 1.0, 7.0):
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


def measure(info: CheckpointInfo, model: Forecaster, folder: Path, seed: int = 0) -> Found:
    known = synthetic(info, AMONG, seed)
    for file, graph in trace_all(inference_form(model), info.scaler).items():
        onnx.save(graph, folder / file)
    verified = verify(model, info.scaler, folder, known)
    assert verified.verification.passed
    assert verified.margin_bound is not None
    served = Graph(folder / "forecast.onnx")
    kinds, asked = zip(*histories(info, seed), strict=True)
    count = len(asked)
    # At times of windows that are known.
    past, future = (
        None if each is None else np.resize(each, (count, *each.shape[1:]))
        for each in (known.history_calendar, known.future_calendar)
    )
    windows = WindowSet("flat", np.stack(asked), past, future)
    alone = [served.run(part.inputs) for part in windows.batches(1)]
    margin, forecast = (
        np.concatenate([part[name] for part in alone]) for name in ("margin", "forecast")
    )
    least = np.array(info.target_scaler.training.std)
    at = slice(None) if info.config.targets is None else [*info.config.targets]
    size = np.maximum(np.abs(windows.history[..., at]).max(axis=1), least)
    errors = np.zeros(count)
    # Among others, in two orders, and among copies of itself.
    orders = (np.arange(count), np.random.default_rng(seed).permutation(count))
    batches = [*np.concatenate([np.resize(order, (2, AMONG)) for order in orders])]
    batches += [np.full(AMONG, place) for place in range(30)]
    for batch in batches:
        among = served.run(windows.take(batch).inputs)["forecast"]
        differences = np.abs(among.astype(np.float64) - forecast[batch]).max(axis=1)
        np.maximum.at(errors, batch, (differences / size[batch]).max(axis=1))
    ordinary = [served.run(part.inputs)["margin"] for part in known.take(slice(4)).batches(1)]
    bound = verified.margin_bound
    return Found(np.array(kinds), margin < bound, errors, bool((np.array(ordinary) < bound).any()))


@pytest.mark.parametrize("name", CONFIGS)
def test_flat_histories_are_forecast_alike_or_marked(name: str, tmp_path: Path) -> None:
    config, seed = CONFIGS[name]
    torch.manual_seed(seed or 0)
    model = randomised(config) if seed is None else config.build().eval()
    names, scaler = tuple("abcdefghi"[: config.channels]), Scaler.identity(config.channels)
    info = CheckpointInfo(config=config, channels=names, frequency="h", scaler=scaler)
    found = measure(info, model, tmp_path, seed or 0)
    assert found.errors[~found.marked].max(initial=0) <= LARGEST
    if seed is None:
        # Ties are marked, and what varies is no tie.
        assert found.marked[found.kinds == "flat"].all()
        assert not found.ordinary


@pytest.mark.parametrize("name", ["tslib_autoformer_dec_shorter", "autoformer_official"])
def test_flat_histories_of_published_models(name: str, tmp_path: Path) -> None:
    imported = golden.case(name).imported
    found = measure(imported.info, imported.model, tmp_path)
    assert found.errors[~found.marked].max(initial=0) <= LARGEST
