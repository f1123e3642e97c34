"""PatchTST: patches of one channel are the tokens (Nie et al., ICLR 2023, arXiv:2211.14730).

The defaults are the Time-Series-Library's form; the other fields cover the paper's own code.
"""

from __future__ import annotations

from typing import ClassVar, Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.nn import functional
from typing_extensions import override

from foretell.bundle.attention import Axis
from foretell.models.attending import AttendingConfig
from foretell.models.attention.evidence import Evidence, by_channel
from foretell.models.attention.mechanism import Site
from foretell.models.config import ARCHITECTURES, ForecasterConfig, NormOfWindows
from foretell.models.forecaster import Forecaster
from foretell.models.inputs import Explained, Inputs
from foretell.models.layers.decomposition import SeriesDecomposition, check_kernel
from foretell.models.layers.dropout import Dropout
from foretell.models.layers.embedding import sinusoids
from foretell.models.layers.encoder import Encoder
from foretell.models.layers.normalization import TokenBatchNorm
from foretell.models.layers.transformer import EncoderLayer
from foretell.models.layers.window_norms import WindowNorm

Norm = Literal["layer", "batch"]
# The map of this number of tokens takes 256 MiB per head.
_MOST_JOINT = 8192


def _dropout(known: dict[str, float]) -> float:
    return known.get("dropout", 0.0)


@ARCHITECTURES.add
class PatchTSTConfig(AttendingConfig):
    """Configuration of a PatchTST."""

    architecture: Literal["patchtst"] = "patchtst"
    has_heads: ClassVar[bool] = True
    patch: int = Field(default=16, ge=1, description="Steps of a patch.")
    stride: int = Field(default=8, ge=1, description="Steps from one patch to the next.")
    pad_end: bool = Field(
        default=True, description="Repeat the last value a stride long: one patch more."
    )
    patch_bias: bool = Field(default=False, description="Whether patches are mapped with a bias.")
    positions: Literal["sinusoidal", "learned"] = Field(
        default="sinusoidal", description="Positions of the patches."
    )
    norm: Norm = Field(default="layer", description="Norm inside the encoder layers.")
    final_norm: Norm | None = Field(default="batch", description="Norm after the last layer.")
    attention_dropout: float = Field(
        default_factory=_dropout,
        ge=0,
        lt=1,
        description="Probability, on the attention weights in training; that of dropout if not "
        "given.",
    )
    projection_dropout: float = Field(
        default=0.0,
        ge=0,
        lt=1,
        description="Probability, after an attention's last map and before dropout; the paper's "
        "code has that of dropout.",
    )
    window_norm: NormOfWindows = "mean"
    individual: bool = Field(
        default=False, description="Each channel has its own map to the horizon."
    )
    head_dropout: float = Field(
        default_factory=_dropout,
        ge=0,
        lt=1,
        description="Probability, on the forecast in training; that of dropout if not given.",
    )
    joint_channels: bool = Field(
        default=False,
        description="Patches of all channels attend to each other, not each channel by itself.",
    )
    decomposition: int | None = Field(
        default=None,
        ge=1,
        description="Steps of a moving average; it and the rest have a network each.",
    )

    @model_validator(mode="after")
    def _check_patches(self) -> Self:
        if self.patch > self.context + self.pad_end * self.stride:
            padded = " and a stride" if self.pad_end else ""
            raise ValueError(
                f"patch: {self.patch} steps are more than the context {self.context}{padded}"
            )
        if self.decomposition is not None and self.head is not None:
            raise ValueError("decomposition: excludes a head, whose parameters cannot be added")
        if self.decomposition is not None:
            check_kernel("decomposition", self.decomposition)
        if self.joint_channels and self.channels * self.patches > _MOST_JOINT:
            raise ValueError(
                f"joint_channels: {self.channels} channels of {self.patches} patches are more than "
                f"{_MOST_JOINT} tokens"
            )
        if self.calendar is not None:
            raise ValueError("calendar: PatchTST reads no calendar features")
        return self

    @override
    def build(self) -> Forecaster:
        return PatchTST(self)

    @override
    def build_window_norm(self) -> WindowNorm | None:
        # Trend and rest have one each, as published.
        return None if self.decomposition else super().build_window_norm()

    @property
    def branches(self) -> tuple[str, ...]:
        """Prefixes of the stages of each network."""
        return ("residual.", "trend.") if self.decomposition else ("",)

    @override
    def sites(self) -> dict[str, tuple[int, Site]]:
        """Patches of a channel attend to each other, or patches of all channels.

        With all channels, position i is patch `i mod patches` of channel `i // patches`, for which
        axes have no unit.
        """
        joint = Axis(of="landmarks", length=self.channels * self.patches)
        patches = Axis(
            of="patches",
            length=self.patches,
            start=-self.context,
            stride=self.stride,
            width=self.patch,
            end=0,
        )
        axis = joint if self.joint_channels else patches
        site = Site(
            self.d_model,
            self.heads,
            axis,
            axis,
            dropout=self.attention_dropout,
            channels=None if self.joint_channels else self.channels,
        )
        return {
            f"{branch}encoder.{i}.self": (i, site)
            for branch in self.branches
            for i in range(self.encoder_layers)
        }

    @property
    def patches(self) -> int:
        """Tokens of a channel."""
        return max((self.context - self.patch) // self.stride + 1 + self.pad_end, 1)


class PatchEncoder(nn.Module):
    """One network from history to forecast, each channel by itself.

    Args:
        config: Configuration of the model.
        branch: Prefix of its stages.
    """

    def __init__(self, config: PatchTSTConfig, branch: str = "") -> None:
        super().__init__()
        self.config = config
        self.window_norm = (
            ForecasterConfig.build_window_norm(config) if config.decomposition else None
        )
        self.patch_projection = nn.Linear(config.patch, config.d_model, bias=config.patch_bias)
        self.positions: Tensor
        if config.positions == "learned":
            self.positions = nn.Parameter(torch.empty(config.patches, config.d_model))
            nn.init.uniform_(self.positions, -0.02, 0.02)
        else:
            self.positions = nn.Buffer(sinusoids(config.patches, config.d_model), persistent=False)
        self.dropout = Dropout(config.dropout)
        self.layers = Encoder(
            EncoderLayer(
                config.build_attention(f"{branch}encoder.{i}.self"),
                config.d_model,
                config.d_ff,
                activation=config.activation,
                dropout=config.dropout,
                projection_dropout=config.projection_dropout,
                norm=_norm(config.norm),
            )
            for i in range(config.encoder_layers)
        )
        self.final_norm = _norm(config.final_norm)(config.d_model)
        heads = config.channels if config.individual else 1
        self.heads = nn.ModuleList(
            nn.Linear(config.d_model * config.patches, config.parameters * config.horizon)
            for _ in range(heads)
        )
        self.head_dropout = Dropout(config.head_dropout)

    def forward(
        self, history: Tensor, *, explain: bool = False
    ) -> tuple[Tensor, list[Evidence | None]]:
        """Forecast from `[batch, context, channels]`.

        Returns:
            `[batch, parameters * horizon, channels]` and, if requested, the evidence of each layer.
            It has a channels axis after batch if each channel attends by itself.
        """
        statistics = None
        if self.window_norm is not None:
            history, statistics = self.window_norm(history)
        tokens = self.dropout(self.patch_projection(self._patches(history)) + self.positions)
        channels = tokens.shape[1]
        joint = self.config.joint_channels
        # Channels share the encoder; if each attends by itself, they join the batch.
        tokens = tokens.flatten(1, 2) if joint else tokens.flatten(0, 1)
        layers = self.layers(tokens, explain=explain)
        shape = (-1, channels, self.config.patches, self.config.d_model)
        tokens = self.final_norm(layers[-1].output).reshape(shape)
        # The head reads feature by feature, each over all patches.
        forecast = self._head(tokens.transpose(-1, -2).flatten(-2)).transpose(1, 2)
        if self.window_norm is not None and statistics is not None:
            forecast = self.window_norm.reverse(forecast, statistics)
        seen = [layer.evidence for layer in layers]
        return forecast, seen if joint else [by_channel(one, channels) for one in seen]

    def _patches(self, history: Tensor) -> Tensor:
        """`[batch, context, channels]` to `[batch, channels, patches, patch]`."""
        series = history.transpose(1, 2)
        if self.config.pad_end:
            series = functional.pad(series, (0, self.config.stride), mode="replicate")
        return series.unfold(-1, self.config.patch, self.config.stride)

    def _head(self, features: Tensor) -> Tensor:
        """`[batch, channels, d_model * patches]` to `[batch, channels, parameters * horizon]`."""
        if not self.config.individual:
            return self.head_dropout(self.heads[0](features))  # type: ignore[no-any-return]
        forecasts = [head(features[:, channel]) for channel, head in enumerate(self.heads)]
        return self.head_dropout(torch.stack(forecasts, dim=1))  # type: ignore[no-any-return]


class PatchTST(Forecaster):
    """One `PatchEncoder`, or one for the trend and one for the rest."""

    config: PatchTSTConfig

    def __init__(self, config: PatchTSTConfig) -> None:
        super().__init__(config)
        self.stages = config.describe_stages()
        self.decomposition = (
            SeriesDecomposition(config.decomposition) if config.decomposition else None
        )
        self.branches = nn.ModuleList(PatchEncoder(config, branch) for branch in config.branches)

    @override
    def run(self, inputs: Inputs, *, explain: bool) -> Explained:
        history = inputs.history
        parts = self.decomposition(history) if self.decomposition is not None else (history,)
        seen: dict[str, Evidence | None] = {}
        forecasts = []
        for name, branch, part in zip(self.config.branches, self.branches, parts, strict=True):
            forecast, layers = branch(part, explain=explain)
            forecasts.append(forecast)
            seen |= {f"{name}encoder.{i}.self": one for i, one in enumerate(layers)}
        total = forecasts[0] if len(forecasts) == 1 else forecasts[0] + forecasts[1]
        return Explained.of(total, seen)


def _norm(norm: Norm | None) -> type[nn.Module]:
    if norm is None:
        return nn.Identity
    return nn.LayerNorm if norm == "layer" else TokenBatchNorm
