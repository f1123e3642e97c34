"""Checkpoints of the Time-Series-Library's TimeXer.

The library cannot be installed. NeuralForecast has copies of its modules with the same names of
weights (embeddings, encoder, head); `Published` puts them together and reads inputs as the
library's `models/TimeXer.py` does, which NeuralForecast does in another way.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from foretell.importers.saved import Request
from tests.importers.conformance import Case, Reference

SIZES = {"seq_len": 40, "pred_len": 7, "patch_len": 6, "d_model": 16, "n_heads": 4, "d_ff": 20}
WINDOWS = 16


class Published(nn.Module):
    """The library's model, with random weights.

    Args:
        features: M, S or MS.
        channels: Channels of the data.
        activation: gelu or relu.
        norm: Whether windows are normalised.
    """

    def __init__(self, features: str, channels: int, activation: str, *, norm: bool) -> None:
        super().__init__()
        modules: Any = pytest.importorskip("neuralforecast.models.timexer")
        context, horizon, patch, width, heads, inner = SIZES.values()
        self.features, self.norm = features, norm
        series = channels if features == "M" else 1

        def attention() -> nn.Module:
            full = modules.FullAttention(False, 3, attention_dropout=0.1, output_attention=False)
            made: nn.Module = modules.AttentionLayer(full, width, heads)
            return made

        layers = [
            modules.EncoderLayer(attention(), attention(), width, inner, activation=activation)
            for _ in range(2)
        ]
        self.en_embedding = modules.EnEmbedding(series, width, patch, 0.1)
        self.ex_embedding = modules.DataEmbedding_inverted(context, width, 0.1)
        self.encoder = modules.Encoder(layers, norm_layer=nn.LayerNorm(width))
        self.head = modules.FlattenHead(channels, width * (context // patch + 1), horizon, 0.1)

    def forward(self, history: Tensor, marks: Tensor) -> Tensor:
        """Forecast `[batch, horizon, series]` of `[batch, context, channels]` and its marks."""
        mean, spread = torch.zeros_like(history[:, :1]), torch.ones_like(history[:, :1])
        if self.norm:
            mean = history.mean(1, keepdim=True)
            centred = history - mean
            spread = torch.sqrt(torch.var(centred, dim=1, keepdim=True, unbiased=False) + 1e-5)
            history = centred / spread
        endogenous, exogenous = history, history
        if self.features != "M":
            endogenous, exogenous = history[:, :, -1:], history[:, :, :-1]
            mean, spread = mean[..., -1:], spread[..., -1:]
        tokens, series = self.en_embedding(endogenous.permute(0, 2, 1))
        found = self.encoder(tokens, self.ex_embedding(exogenous, marks))
        found = found.reshape(-1, series, *found.shape[-2:]).permute(0, 1, 3, 2)
        forecast: Tensor = self.head(found).permute(0, 2, 1)
        return forecast * spread + mean


def marks(steps: int) -> Tensor:
    """Hour, day of week, of month and of year from `conformance.START` on, in [-0.5, 0.5]."""
    hours = np.arange(steps)
    # 2026-01-01 is a Thursday.
    columns = (hours % 24 / 23, (3 + hours // 24) % 7 / 6, hours // 24 / 30, hours // 24 / 365)
    scaled = np.stack(columns, axis=-1) - 0.5
    return torch.tensor(scaled, dtype=torch.float32).expand(WINDOWS, -1, -1)


def refer(features: str, activation: str, use_norm: int, folder: Path) -> Reference:
    """Save a model, and forecast walks of different levels and scales with it."""
    channels = 1 if features == "S" else 3
    torch.manual_seed(4)
    model = Published(features, channels, activation, norm=bool(use_norm)).eval()
    for module in model.modules():
        if isinstance(module, nn.LayerNorm):
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.normal_(module.bias, std=0.2)
    folder.mkdir(parents=True)
    torch.save(model.state_dict(), folder / "checkpoint.pth")
    context = SIZES["seq_len"]
    walks = np.random.default_rng(2).normal(size=(WINDOWS, context, channels)).cumsum(axis=1)
    history = torch.tensor(walks * 3 + 10, dtype=torch.float32)
    dates = marks(context + SIZES["pred_len"])
    calendars = dates[:, :context], dates[:, context:]
    with torch.inference_mode():
        found = model(history, calendars[0]).numpy()
    arguments = {"n_heads": "4", "activation": activation, "features": features}
    arguments |= {"use_norm": str(use_norm), "embed": "timeF", "freq": "h"}
    request = Request(
        folder / "checkpoint.pth",
        "tslib",
        "timexer",
        channels=("load", "wind", "OT")[-channels:],
        frequency="h",
        unscaled=True,
        arguments=arguments,
    )
    return Reference(request, history, found, calendars=calendars)


CASES = {
    "tslib TimeXer M": Case(partial(refer, "M", "gelu", 1), served=True),
    "tslib TimeXer MS": Case(partial(refer, "MS", "relu", 1), served=True),
    "tslib TimeXer S": Case(partial(refer, "S", "gelu", 0)),
}
