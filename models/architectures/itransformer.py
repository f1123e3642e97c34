"""iTransformer: a token is the context of a channel (Liu et al., ICLR 2024, arXiv:2310.06625).

Calendar features, if any, are further tokens, as in the Time-Series-Library.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from torch import nn
from typing_extensions import override

from foretell.bundle.attention import Axis
from foretell.models.attending import AttendingConfig
from foretell.models.attention.mechanism import Site
from foretell.models.config import ARCHITECTURES, NormOfWindows, calendar_of
from foretell.models.forecaster import Forecaster
from foretell.models.inputs import Explained, Inputs
from foretell.models.layers.dropout import Dropout
from foretell.timeaxis.calendar import Calendar
from foretell.timeaxis.frequency import Frequency


@ARCHITECTURES.add
class ITransformerConfig(AttendingConfig):
    """Configuration of an iTransformer."""

    architecture: Literal["itransformer"] = "itransformer"
    has_heads: ClassVar[bool] = True
    window_norm: NormOfWindows = "mean"

    @override
    def build(self) -> Forecaster:
        return ITransformer(self)

    @classmethod
    @override
    def calendar_for(cls, frequency: Frequency, settings: dict[str, object]) -> Calendar | None:
        return calendar_of(frequency, "scaled")

    @override
    def sites(self) -> dict[str, tuple[int, Site]]:
        """Channels attend to each other, and to the calendar's tokens behind them."""
        features = self.calendar_features
        tokens = Axis(of="channels", length=self.channels + features, padding=features)
        site = Site(self.d_model, self.heads, tokens, tokens, dropout=self.dropout)
        return {f"encoder.{i}.self": (i, site) for i in range(self.encoder_layers)}


class ITransformer(Forecaster):
    """Every channel is a token."""

    config: ITransformerConfig

    def __init__(self, config: ITransformerConfig) -> None:
        super().__init__(config)
        self.stages = config.describe_stages()
        self.embedding = nn.Linear(config.context, config.d_model)
        self.dropout = Dropout(config.dropout)
        self.encoder_layers = config.build_encoder_layers()
        self.encoder_norm = nn.LayerNorm(config.d_model)
        self.projection = nn.Linear(config.d_model, config.parameters * config.horizon)

    @override
    def run(self, inputs: Inputs, *, explain: bool) -> Explained:
        history, calendar = inputs.history, inputs.history_calendar
        channels = history.shape[2]
        if self.config.calendar is not None and calendar is not None:
            history = torch.cat([history, calendar], dim=2)
        tokens = self.dropout(self.embedding(history.transpose(1, 2)))
        layers = self.encoder_layers(tokens, explain=explain)
        tokens = self.encoder_norm(layers[-1].output)
        forecast = self.projection(tokens[:, :channels]).transpose(1, 2)
        seen = {f"encoder.{i}.self": layer.evidence for i, layer in enumerate(layers)}
        return Explained.of(forecast, seen)
