"""Training a model with a mechanism, and asking whether what it shows is what it needs."""

from __future__ import annotations

import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from bench.attention.subjects import CONTEXTS, HORIZON, RECIPE, SIZES, settings
from bench.results import Record
from foretell.data.panel import Panel
from foretell.models.attention.evidence import Dense, Single, Sparse
from foretell.models.forecaster import Forecaster
from foretell.training.config import NamedSplit, TrainingConfig
from foretell.training.preparation import prepare
from foretell.training.train import train
from foretell.training.windows import Windows

WINDOWS = 64
_SHARE, _DRAWS = 0.1, 5


class Budget(NamedTuple):
    """What each training may take.

    Attributes:
        epochs: At most.
        splits: Of the data.
    """

    epochs: int
    splits: NamedSplit | tuple[float, float, float]


def trained(
    panel: Panel, architecture: str, name: str, seed: int, budget: Budget, out: Path
) -> Record:
    """Train a model, and measure its errors on the test split and how faithful its maps are."""
    context = CONTEXTS[architecture]
    sizes = {"channels": len(panel.channels), "context": context, "horizon": HORIZON, **SIZES}
    fields = settings(architecture, name, **sizes)
    own = fields.keys() - {"architecture", "channels", "context", "horizon"}
    config = TrainingConfig(
        arch=architecture,
        context=context,
        horizon=HORIZON,
        model={field: fields[field] for field in own},
        epochs=budget.epochs,
        **RECIPE,
        splits=budget.splits,
        seed=seed,
    )
    begun = time.monotonic()
    checkpoint = train(config, panel, out, overwrite=True)
    seconds = time.monotonic() - begun
    test = checkpoint.info.test
    if test is None:
        raise ValueError(f"{name}: its accuracy was not measured")
    found = {"mse": test.model.mse, "mae": test.model.mae, "seconds": seconds}
    windows = prepare(config, panel).test
    faithful = faithfulness(checkpoint.model, windows)
    return found if faithful is None else {**found, "faithful": faithful}


def faithfulness(model: Forecaster, windows: Windows) -> float | None:
    """How much more a forecast changes without the steps that the first stage looks at most.

    A tenth of the steps of the history are replaced by the mean of their window (erasure, as in
    arXiv:1911.03429): those with the largest weights, and as many drawn by lot.

    Returns:
        The mean square of the change by the former, in units of that by the latter: 1 is no better
        than chance. None where the first stage shows no map of steps.
    """
    picked = np.linspace(0, len(windows) - 1, WINDOWS).astype(int)
    batch = windows.batch(torch.from_numpy(picked))
    inputs = (batch.history, batch.history_calendar, batch.future_calendar)
    with torch.inference_mode():
        forecast, attention, *_ = model.explain(*inputs)
        stage = model.stages[0]
        if stage.name not in attention or not stage.key.in_time:
            return None
        weights = _by_step(model, attention[stage.name], batch.history.shape[1])
        if weights is None:
            return None
        count = round(_SHARE * batch.history.shape[1])
        generator = torch.Generator().manual_seed(0)

        def change(scores: Tensor) -> float:
            gone = torch.zeros_like(scores).scatter(1, scores.topk(count, dim=1).indices, 1.0)
            mean = batch.history.mean(dim=1, keepdim=True)
            erased = torch.where(gone[..., None] > 0, mean, batch.history)
            return float((model(erased, *inputs[1:]) - forecast).square().mean())

        by_lot = [change(torch.rand(weights.shape, generator=generator)) for _ in range(_DRAWS)]
        return change(weights) / (sum(by_lot) / _DRAWS)


def _by_step(model: Forecaster, evidence: Single, steps: int) -> Tensor | None:
    """The share of the attention that each step of the history gets, `[batch, steps]`."""
    key = model.stages[0].key
    if isinstance(evidence, Sparse):
        shape = (*evidence.keys.shape[:-1], key.length + 1)
        # What is no key is put behind the last one.
        at = torch.where(evidence.keys < 0, key.length, evidence.keys)
        dense = evidence.weights.new_zeros(shape).scatter_add(-1, at, evidence.weights)[..., :-1]
    elif isinstance(evidence, Dense):
        dense = evidence.weights
    else:
        return None
    by_position = dense.flatten(1, -2).mean(dim=1)
    starts = steps + key.start + key.stride * torch.arange(key.length)
    covered = (starts[:, None] + torch.arange(key.width)).clamp(max=steps - 1)
    return by_position.new_zeros(len(by_position), steps).scatter_add(
        1,
        covered.flatten().expand(len(by_position), -1),
        by_position.repeat_interleave(key.width, dim=1) / key.width,
    )
