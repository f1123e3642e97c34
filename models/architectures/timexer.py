"""TimeXer: patches of a forecast channel read other series through a global token.

As published by Wang et al. (NeurIPS 2024, arXiv:2402.19072) and in the Time-Series-Library: the
patches of each forecast channel and its global token attend to each other. The global tokens then
attend to whole series, each of which is one token: channels and, if any, calendar features.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn
from typing_extensions import override

from foretell.bundle.attention import Axis
from foretell.bundle.covariates import features_of
from foretell.models.attending import AttendingConfig
from foretell.models.attention.evidence import Evidence, by_channel
from foretell.models.attention.mechanism import Attended, Site
from foretell.models.config import ARCHITECTURES, NormOfWindows, calendar_of
from foretell.models.forecaster import Forecaster
from foretell.models.inputs import Explained, Inputs
from foretell.models.layers.dropout import Dropout
from foretell.models.layers.embedding import sinusoids
from foretell.models.layers.feed_forward import FeedForward
from foretell.models.layers.repetition import at_each_step
from foretell.models.layers.transformer import Decoded
from foretell.models.layers.window_norms import InstanceNorm
from foretell.timeaxis.calendar import Calendar
from foretell.timeaxis.frequency import Frequency

Exogenous = Literal["all", "others"]


def _exogenous(known: dict[str, Any]) -> Exogenous:
    targets = known.get("targets")
    return "all" if targets is None or len(targets) == known.get("channels") else "others"


@ARCHITECTURES.add
class TimeXerConfig(AttendingConfig):
    """Configuration of a TimeXer."""

    architecture: Literal["timexer"] = "timexer"
    has_heads: ClassVar[bool] = True
    patch: int = Field(default=16, ge=1, description="Steps of a patch.")
    unpatched: Literal["oldest", "newest"] = Field(
        default="oldest",
        description="Steps that are in no patch if patches do not fill the context; the published "
        "code leaves out the newest.",
    )
    exogenous: Exogenous = Field(
        default_factory=_exogenous,
        description="Channels that global tokens attend to: all, or others than those forecast; "
        "others if not given and there are any.",
    )
    window_norm: NormOfWindows = "mean"
    target_norm: bool = Field(
        default=False,
        description="Whether RevIN normalises the forecast channels alone, within window_norm, as "
        "in NeuralForecast.",
    )
    static_tokens: bool = Field(
        default=False,
        description="Whether global tokens attend to static covariates, each as a constant series.",
    )

    @model_validator(mode="after")
    def _check_series(self) -> Self:
        if self.patch > self.context:
            raise ValueError(f"patch: {self.patch} steps are more than the context {self.context}")
        if self.static_tokens and not self.static_features:
            raise ValueError("static_tokens: there are no static covariates")
        if not self.exogenous_channels and not self.other_tokens:
            raise ValueError(
                "exogenous: no channels are left to read, no calendar features and no static "
                "tokens; expected all"
            )
        return self

    @override
    def build(self) -> Forecaster:
        return TimeXer(self)

    @classmethod
    @override
    def calendar_for(cls, frequency: Frequency, settings: dict[str, object]) -> Calendar | None:
        return calendar_of(frequency, "scaled")

    @property
    @override
    def reads_all_covariates(self) -> bool:
        return self.static_tokens and not (self.covariates and self.covariates.future)

    @property
    def static_features(self) -> int:
        """Number of features of static covariates that are tokens."""
        known = self.covariates.static if self.covariates and self.static_tokens else ()
        return features_of(known)

    @property
    def patches(self) -> int:
        """Patches of a channel."""
        return max(self.context // self.patch, 1)

    @property
    def first_patch(self) -> int:
        """Row of the context where the first patch begins."""
        return self.context - self.patches * self.patch if self.unpatched == "oldest" else 0

    @property
    def exogenous_channels(self) -> tuple[int, ...]:
        """Places of the channels that global tokens attend to."""
        return tuple(range(self.channels)) if self.exogenous == "all" else self.other_channels

    @property
    def other_tokens(self) -> int:
        """Number of tokens that global tokens attend to besides channels."""
        return self.calendar_features + self.static_features

    @override
    def sites(self) -> dict[str, tuple[int, Site]]:
        """Tokens of a channel attend to each other, and its global token to channels.

        The global token follows the patches; calendar features and static covariates follow the
        channels.
        """
        tokens = Axis(
            of="patches",
            length=self.patches + 1,
            start=self.first_patch - self.context,
            stride=self.patch,
            width=self.patch,
            padding=1,
        )
        features = self.other_tokens
        forecast, read = self.target_channels, self.exogenous_channels
        query = Axis(of="channels", length=len(forecast), places=self._places(forecast))
        key = Axis(of="landmarks", length=features or 1)
        if read:
            length = len(read) + features
            key = Axis(of="channels", length=length, padding=features, places=self._places(read))
        own = Site(
            self.d_model,
            self.heads,
            tokens,
            tokens,
            chained=False,
            dropout=self.dropout,
            channels=len(forecast),
            places=self._places(forecast),
        )
        cross = own._replace(query=query, key=key, channels=None, places=None)
        return {
            name: (i, site)
            for i in range(self.encoder_layers)
            for name, site in ((f"encoder.{i}.self", own), (f"encoder.{i}.cross", cross))
        }

    def _places(self, channels: tuple[int, ...]) -> tuple[int, ...] | None:
        return None if len(channels) == self.channels else channels


class TimeXerLayer(nn.Module):
    """Self-attention, cross-attention of the global tokens, and feed-forward network.

    Args:
        config: Configuration of the model.
        layer: Number of the layer.
    """

    def __init__(self, config: TimeXerConfig, layer: int) -> None:
        super().__init__()
        self.self_attention = config.build_attention(f"encoder.{layer}.self")
        self.self_norm = nn.LayerNorm(config.d_model)
        self.cross_attention = config.build_attention(f"encoder.{layer}.cross")
        self.cross_norm = nn.LayerNorm(config.d_model)
        self.feed_forward = FeedForward(
            config.d_model, config.d_ff, activation=config.activation, dropout=config.dropout
        )
        self.feed_forward_norm = nn.LayerNorm(config.d_model)
        self.dropout = Dropout(config.dropout)

    def forward(self, tokens: Tensor, source: Tensor, *, explain: bool = False) -> Decoded:
        """Run the layer.

        Args:
            tokens: `[batch, channels, patches + 1, d_model]`, the global token last.
            source: `[batch, series, d_model]`.
            explain: Whether to return evidence.
        """
        channels = tokens.shape[1]
        # Channels join the batch, since each attends by itself.
        rows = tokens.flatten(0, 1)
        own: Attended = self.self_attention(rows, rows, explain=explain)
        rows = self.self_norm(rows + self.dropout(own.output))
        tokens = rows.reshape(-1, *tokens.shape[1:])
        glob = tokens[:, :, -1]
        cross: Attended = self.cross_attention(glob, source, explain=explain)
        glob = self.cross_norm(glob + self.dropout(cross.output))
        tokens = torch.cat([tokens[:, :, :-1], glob[:, :, None]], dim=2)
        tokens = self.feed_forward_norm(tokens + self.feed_forward(tokens))
        return Decoded(tokens, by_channel(own.evidence, channels), cross.evidence)


class TimeXer(Forecaster):
    """Patches of each forecast channel, and whole series that their global tokens read."""

    config: TimeXerConfig

    def __init__(self, config: TimeXerConfig) -> None:
        super().__init__(config)
        self.stages = config.describe_stages()
        forecast, read = config.target_channels, config.exogenous_channels
        # The base class cuts the targets out of all channels; others repeat the first target.
        spread = [forecast.index(i) if i in forecast else 0 for i in range(config.channels)]
        self._spread = nn.Buffer(torch.tensor(spread), persistent=False)
        some = torch.tensor(read) if 0 < len(read) < config.channels else None
        self._read = None if some is None else nn.Buffer(some, persistent=False)
        self.patch_projection = nn.Linear(config.patch, config.d_model, bias=False)
        self.positions = nn.Buffer(sinusoids(config.patches, config.d_model), persistent=False)
        self.global_tokens = nn.Parameter(torch.randn(len(forecast), config.d_model))
        self.series_embedding = nn.Linear(config.context, config.d_model)
        self.layers = nn.ModuleList(TimeXerLayer(config, i) for i in range(config.encoder_layers))
        self.final_norm = nn.LayerNorm(config.d_model)
        self.projection = nn.Linear(
            config.d_model * (config.patches + 1), config.parameters * config.horizon
        )
        self.dropout = Dropout(config.dropout)
        normed = [float(i in forecast) for i in range(config.channels)]
        self._normed = nn.Buffer(torch.tensor(normed), persistent=False)
        self.target_norm = InstanceNorm(config.channels) if config.target_norm else None

    @override
    def run(self, inputs: Inputs, *, explain: bool) -> Explained:
        history = inputs.history
        centre = spread = None
        if self.target_norm is not None:
            normalised, moments = self.target_norm(history)
            centre = moments.centre * self._normed
            spread = moments.spread * self._normed + (1 - self._normed)
            history = torch.where(self._normed > 0, normalised, history)
        tokens = self._patches(self._of_targets(history))
        source = self._series(history, inputs)
        seen: dict[str, Evidence | None] = {}
        for i, layer in enumerate(self.layers):
            tokens, seen[f"encoder.{i}.self"], seen[f"encoder.{i}.cross"] = layer(
                tokens, source, explain=explain
            )
        # The projection reads feature by feature, each over all tokens.
        features = self.final_norm(tokens).transpose(-1, -2).flatten(-2)
        forecast = self.dropout(self.projection(features)).transpose(1, 2)
        if self.config.targets is not None:
            forecast = forecast.index_select(2, self._spread)
        if centre is not None and spread is not None:
            forecast = forecast * spread + centre
        return Explained.of(forecast, seen)

    def _patches(self, history: Tensor) -> Tensor:
        """`[batch, context, channels]` to tokens `[batch, channels, patches + 1, d_model]`."""
        config, channels = self.config, history.shape[2]
        first = config.first_patch
        series = history[:, first : first + config.patches * config.patch].transpose(1, 2)
        patches = self.patch_projection(series.reshape(-1, channels, config.patches, config.patch))
        glob = self.global_tokens[:, None].expand(history.shape[0], -1, -1, -1)
        tokens = torch.cat([patches + self.positions, glob], dim=2)
        return self.dropout(tokens)  # type: ignore[no-any-return]

    def _series(self, history: Tensor, inputs: Inputs) -> Tensor:
        """A token `[batch, series, d_model]` for each channel that is read, and each feature."""
        series = []
        if self.config.exogenous_channels:
            series.append(history if self._read is None else history.index_select(2, self._read))
        if self.config.calendar is not None and inputs.history_calendar is not None:
            series.append(inputs.history_calendar)
        if self.config.static_tokens and self.covariate_encoder is not None:
            static = self.covariate_encoder.of_series(inputs)
            if static is not None:
                series.append(at_each_step(static, self.config.context))
        joined = torch.cat(series, dim=2) if len(series) > 1 else series[0]
        return self.dropout(self.series_embedding(joined.transpose(1, 2)))  # type: ignore[no-any-return]
