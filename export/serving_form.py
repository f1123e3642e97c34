"""The function a bundle's graphs compute: the user's units in and out."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from bundle.manifest import Scaler
from models.forecaster import Forecaster

GraphKind = Literal["forecast", "explain"]


class ServingForm(nn.Module):
    """A model between its scaler and the inverse of it.

    The scaler stays an explicit subtraction and division: folded into the weights, data with a
    large offset would lose its precision (docs: lag agreement of auto-correlation).

    Args:
        model: Standardised history to standardised forecast.
        scaler: Mean and standard deviation of each channel.
        kind: Whether the attention follows the forecast in the outputs.
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
        if self.kind == "forecast":
            return ("forecast",)
        return ("forecast", *(name for stage in self.model.stages for name in stage.outputs))

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
        if self.kind == "forecast":
            return (self.model(*inputs) * self.std + self.mean,)
        forecast, attention = self.model.explain(*inputs)
        seen = (part for stage in self.model.stages for part in attention[stage.name])
        return (forecast * self.std + self.mean, *seen)
