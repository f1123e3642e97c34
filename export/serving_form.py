"""The function a bundle's graphs compute: the user's units in and out."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from bundle.manifest import Scaler
from export.rewrites.lag_choice import LagForecaster
from models.forecaster import Explained, Forecaster

GraphKind = Literal["forecast", "explain"]

MARGIN = "margin"


class ServingForm(nn.Module):
    """A model between its scaler and the inverse of it.

    The scaler stays an explicit subtraction and division: folded into the weights, data with a
    large offset would lose its precision, and auto-correlation its lags.

    Args:
        model: Standardised history to standardised forecast.
        scaler: Mean and standard deviation of each channel.
        kind: Whether the attention follows the forecast in the outputs.

    The inference form of a model with auto-correlations has one more output, `margin` `[batch]`:
    how clearly they chose their lags (`smallest_margin`).
    """

    def __init__(self, model: Forecaster, scaler: Scaler, kind: GraphKind) -> None:
        super().__init__()
        self.model = model
        self.kind = kind
        self.register_buffer("mean", torch.tensor(scaler.mean, dtype=torch.float32))
        self.register_buffer("std", torch.tensor(scaler.std, dtype=torch.float32))
        self.mean: Tensor
        self.std: Tensor

    @property
    def input_names(self) -> tuple[str, ...]:
        """Names of the inputs, in order."""
        calendars = ("history_calendar", "future_calendar")
        return ("history", *(calendars if self.model.config.calendar else ()))

    @property
    def output_names(self) -> tuple[str, ...]:
        """Names of the outputs, in order."""
        names = ("forecast", MARGIN) if isinstance(self.model, LagForecaster) else ("forecast",)
        if self.kind == "forecast":
            return names
        return (*names, *(name for stage in self.model.stages for name in stage.outputs))

    def example_inputs(self, batch: int) -> tuple[Tensor, ...]:
        """Inputs of the right shapes, all zero."""
        config = self.model.config
        history = torch.zeros(batch, config.context, config.channels)
        if config.calendar is None:
            return (history,)
        features = len(config.calendar.features)
        return (
            history,
            torch.zeros(batch, config.context, features),
            torch.zeros(batch, config.horizon, features),
        )

    def forward(
        self,
        history: Tensor,
        history_calendar: Tensor | None = None,
        future_calendar: Tensor | None = None,
    ) -> tuple[Tensor, ...]:
        """Forecast `[batch, horizon, channels]` from `[batch, context, channels]`.

        Returns:
            One tensor for each of `output_names`.
        """
        inputs = ((history - self.mean) / self.std, history_calendar, future_calendar)
        margins: tuple[Tensor, ...] = ()
        if isinstance(self.model, LagForecaster):
            explained, margin = self.model.explain_with_margin(*inputs)
            margins = (margin,)
        elif self.kind == "explain":
            explained = self.model.explain(*inputs)
        else:
            explained = Explained(self.model(*inputs), {})
        outputs = (explained.forecast * self.std + self.mean, *margins)
        if self.kind == "forecast":
            return outputs
        maps = (part for stage in self.model.stages for part in explained.attention[stage.name])
        return (*outputs, *maps)
