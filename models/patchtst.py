"""PatchTST: patches of one channel are the tokens (Nie et al., ICLR 2023, arXiv:2211.14730).

The defaults are the Time-Series-Library's form; the other fields cover the paper's own code.
"""

from __future__ import annotations

from typing import Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.nn import functional
from typing_extensions import override

from foretell.bundle.manifest import AttentionStage, Axis
from foretell.models.forecaster import (
    Attention,
    Explained,
    Forecaster,
    ForecasterConfig,
    SoftmaxAttention,
)
from foretell.models.layers.attention import Attended
from foretell.models.layers.decomposition import SeriesDecomposition
from foretell.models.layers.embedding import sinusoids
from foretell.models.layers.normalization import InstanceNorm, TokenBatchNorm
from foretell.models.layers.transformer_layers import EncoderLayer

Norm = Literal["layer", "batch"]


class PatchTSTConfig(ForecasterConfig):
    """Configuration of a PatchTST.

    Attributes:
        patch: Steps of a patch.
        stride: Steps from one patch to the next.
        pad_end: Repeat the last value `stride` times, which adds one patch.
        patch_bias: Whether the map from patch to token has a bias.
        positions: `sinusoidal`, or a `learned` table.
        norm: Inside the encoder layers.
        final_norm: After the last layer.
        residual_attention: Pass attention scores from layer to layer.
        attention_dropout: Probability, on the attention weights in training.
        instance_norm: What is subtracted from each window (RevIN); None leaves it as it is.
        affine: Whether RevIN has trained parameters.
        individual: One head a channel instead of one for all.
        head_dropout: Probability, on the forecast in training.
        decomposition: Steps of a moving average; trend and rest get a network each. None: one.
    """

    architecture: Literal["patchtst"] = "patchtst"
    patch: int = Field(default=16, ge=1)
    stride: int = Field(default=8, ge=1)
    pad_end: bool = True
    patch_bias: bool = False
    positions: Literal["sinusoidal", "learned"] = "sinusoidal"
    norm: Norm = "layer"
    final_norm: Norm | None = "batch"
    residual_attention: bool = False
    attention_dropout: float = Field(default=0.0, ge=0, lt=1)
    instance_norm: Literal["mean", "last"] | None = "mean"
    affine: bool = False
    individual: bool = False
    head_dropout: float = Field(default=0.0, ge=0, lt=1)
    decomposition: int | None = Field(default=None, ge=1)

    @model_validator(mode="after")
    def _check_patches(self) -> Self:
        if self.d_model % self.heads:
            raise ValueError(f"heads: {self.heads} heads do not divide d_model {self.d_model}")
        if self.patch > self.context:
            raise ValueError(f"patch: {self.patch} steps are more than the context {self.context}")
        if self.decomposition is not None and self.decomposition % 2 == 0:
            raise ValueError(f"decomposition: expected an odd number, got {self.decomposition}")
        if self.affine and self.instance_norm is None:
            raise ValueError("affine: needs instance_norm")
        if self.calendar is not None:
            raise ValueError("calendar: PatchTST reads no calendar features")
        return self

    @property
    def patches(self) -> int:
        """Tokens of a channel."""
        return (self.context - self.patch) // self.stride + 1 + self.pad_end


class PatchEncoder(nn.Module):
    """One network from history to forecast, each channel by itself."""

    def __init__(self, config: PatchTSTConfig) -> None:
        super().__init__()
        self.config = config
        self.instance_norm = (
            InstanceNorm(config.channels, centre=config.instance_norm, affine=config.affine)
            if config.instance_norm
            else None
        )
        self.patch_projection = nn.Linear(config.patch, config.d_model, bias=config.patch_bias)
        if config.positions == "learned":
            self.positions = nn.Parameter(torch.empty(config.patches, config.d_model))
            nn.init.uniform_(self.positions, -0.02, 0.02)
        else:
            table = sinusoids(config.patches, config.d_model)
            self.register_buffer("positions", table, persistent=False)
        self.dropout = nn.Dropout(config.dropout)
        self.layers = nn.ModuleList(
            EncoderLayer(
                config.d_model,
                config.heads,
                config.d_ff,
                activation=config.activation,
                dropout=config.dropout,
                attention_dropout=config.attention_dropout,
                norm=_norm(config.norm),
                residual_attention=config.residual_attention,
            )
            for _ in range(config.encoder_layers)
        )
        self.final_norm = _norm(config.final_norm)(config.d_model)
        heads = config.channels if config.individual else 1
        self.heads = nn.ModuleList(
            nn.Linear(config.d_model * config.patches, config.horizon) for _ in range(heads)
        )
        self.head_dropout = nn.Dropout(config.head_dropout)

    def forward(
        self, history: Tensor, *, return_weights: bool = False
    ) -> tuple[Tensor, list[Tensor]]:
        """Forecast from `[batch, context, channels]`.

        Returns:
            `[batch, horizon, channels]` and, if asked for, the weights of each layer
            `[batch, channels, heads, patches, patches]`.
        """
        statistics = None
        if self.instance_norm is not None:
            history, statistics = self.instance_norm(history)
        tokens = self.dropout(self.patch_projection(self._patches(history)) + self.positions)
        channels = tokens.shape[1]
        # Channels share the encoder: they join the batch.
        tokens = tokens.flatten(0, 1)
        attended = Attended(tokens, None)
        maps = []
        for layer in self.layers:
            attended = layer(
                attended.output, inherited=attended.scores, return_weights=return_weights
            )
            if return_weights and attended.weights is not None:
                maps.append(attended.weights.unflatten(0, (-1, channels)))
        tokens = self.final_norm(attended.output).unflatten(0, (-1, channels))
        # The head reads feature by feature, each over all patches.
        forecast = self._head(tokens.transpose(-1, -2).flatten(-2)).transpose(1, 2)
        if self.instance_norm is not None and statistics is not None:
            forecast = self.instance_norm.reverse(forecast, statistics)
        return forecast, maps

    def _patches(self, history: Tensor) -> Tensor:
        """`[batch, context, channels]` to `[batch, channels, patches, patch]`."""
        series = history.transpose(1, 2)
        if self.config.pad_end:
            series = functional.pad(series, (0, self.config.stride), mode="replicate")
        return series.unfold(-1, self.config.patch, self.config.stride)

    def _head(self, features: Tensor) -> Tensor:
        """`[batch, channels, d_model * patches]` to `[batch, channels, horizon]`."""
        if not self.config.individual:
            return self.head_dropout(self.heads[0](features))  # type: ignore[no-any-return]
        forecasts = [head(features[:, channel]) for channel, head in enumerate(self.heads)]
        return self.head_dropout(torch.stack(forecasts, dim=1))  # type: ignore[no-any-return]


class PatchTST(Forecaster):
    """One `PatchEncoder`, or one for the trend and one for the rest."""

    def __init__(self, config: PatchTSTConfig) -> None:
        super().__init__()
        self.config: PatchTSTConfig = config
        self.decomposition = (
            SeriesDecomposition(config.decomposition) if config.decomposition else None
        )
        branches = ("residual", "trend") if config.decomposition else ("",)
        self.branches = nn.ModuleList(PatchEncoder(config) for _ in branches)
        self._prefixes = tuple(f"{branch}." if branch else "" for branch in branches)

    @property
    @override
    def stages(self) -> tuple[AttentionStage, ...]:
        config = self.config
        patches = Axis(
            length=config.patches,
            start=-config.context,
            stride=config.stride,
            width=config.patch,
            end=0,
        )
        return tuple(
            AttentionStage(
                name=f"{prefix}encoder.{i}.self",
                kind="softmax",
                heads=config.heads,
                query=patches,
                key=patches,
                per_channel=True,
            )
            for prefix in self._prefixes
            for i in range(config.encoder_layers)
        )

    @override
    def forward(
        self,
        history: Tensor,
        history_calendar: Tensor | None = None,
        future_calendar: Tensor | None = None,
    ) -> Tensor:
        return self._run(history, return_weights=False).forecast

    @override
    def explain(
        self,
        history: Tensor,
        history_calendar: Tensor | None = None,
        future_calendar: Tensor | None = None,
    ) -> Explained:
        return self._run(history, return_weights=True)

    def _run(self, history: Tensor, *, return_weights: bool) -> Explained:
        parts = self.decomposition(history) if self.decomposition is not None else (history,)
        attention: dict[str, Attention] = {}
        forecasts = []
        for prefix, branch, part in zip(self._prefixes, self.branches, parts, strict=True):
            forecast, maps = branch(part, return_weights=return_weights)
            forecasts.append(forecast)
            for i, weights in enumerate(maps):
                attention[f"{prefix}encoder.{i}.self"] = SoftmaxAttention(weights)
        total = forecasts[0] if len(forecasts) == 1 else forecasts[0] + forecasts[1]
        return Explained(total, attention)


def _norm(norm: Norm | None) -> type[nn.Module]:
    if norm is None:
        return nn.Identity
    return nn.LayerNorm if norm == "layer" else TokenBatchNorm
