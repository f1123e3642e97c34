"""What every architecture is to the rest of foretell."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor, nn

from foretell.bundle.calendar import Calendar
from foretell.bundle.manifest import AttentionStage

Activation = Literal["gelu", "relu"]


class SoftmaxAttention(NamedTuple):
    """The map of a softmax attention.

    Attributes:
        weights: `[batch, heads, query, key]`, or `[batch, channels, heads, query, key]` where each
            channel attends by itself.
    """

    weights: Tensor


class LagAttention(NamedTuple):
    """What an auto-correlation attended to, the same for all heads.

    Attributes:
        lags: `[batch, k]` int64, by descending correlation; position t reads position t + lag.
        lag_weights: `[batch, k]`, summing to 1.
        correlation: `[batch, lags]`, mean over heads and features of the correlation per lag.
        extremes: `[batch, k + 2]`, of the correlation the largest that were kept, in descending
            order, the first that was not, and the smallest. None where all are kept, and where
            nobody asks how close the choice was: only the served form tells.
    """

    lags: Tensor
    lag_weights: Tensor
    correlation: Tensor
    extremes: Tensor | None = None


Attention = SoftmaxAttention | LagAttention


class Explained(NamedTuple):
    """A forecast and what each attention stage looked at, by stage name."""

    forecast: Tensor
    attention: dict[str, Attention]


class ForecasterConfig(BaseModel):
    """What every architecture needs to know; it fixes both state_dict and forward.

    Attributes:
        architecture: The family; each family's config narrows it.
        channels: Series forecast together.
        context: Steps of history read.
        horizon: Steps forecast in one pass.
        d_model: Features of a token.
        heads: Attention heads; they divide d_model.
        d_ff: Width of the feed-forward layers.
        encoder_layers: Number of encoder layers.
        dropout: Probability, in training only.
        activation: Of the feed-forward layers.
        calendar: Calendar features read, or None.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    architecture: str
    channels: int = Field(ge=1)
    context: int = Field(ge=1)
    horizon: int = Field(ge=1)
    d_model: int = Field(ge=1)
    heads: int = Field(ge=1)
    d_ff: int = Field(ge=1)
    encoder_layers: int = Field(ge=1)
    dropout: float = Field(default=0.1, ge=0, lt=1)
    activation: Activation = "gelu"
    calendar: Calendar | None = None


class Forecaster(nn.Module, ABC):
    """A model from standardised history to standardised forecast."""

    config: ForecasterConfig

    @abstractmethod
    def explain(
        self,
        history: Tensor,
        history_calendar: Tensor | None = None,
        future_calendar: Tensor | None = None,
    ) -> Explained:
        """Forecast, and return what each stage of `stages` attended to.

        Args:
            history: `[batch, context, channels]`, standardised.
            history_calendar: `[batch, context, features]`, for models with a calendar.
            future_calendar: `[batch, horizon, features]`, likewise.

        Returns:
            The forecast `[batch, horizon, channels]`, standardised, and the attention by stage.
        """

    @abstractmethod
    def forward(
        self,
        history: Tensor,
        history_calendar: Tensor | None = None,
        future_calendar: Tensor | None = None,
    ) -> Tensor:
        """Forecast `[batch, horizon, channels]`; arguments as in `explain`."""

    @property
    @abstractmethod
    def stages(self) -> tuple[AttentionStage, ...]:
        """The attention stages `explain` returns, in the order in which they run."""
