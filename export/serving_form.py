"""The function a bundle's graphs compute: the user's units in and out."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from bundle.manifest import Scaler
from models.forecaster import Attention, Forecaster, LagAttention

GraphKind = Literal["forecast", "explain"]

MARGIN = "margin"
# Keeps the margin of a history without any correlation finite.
_TINY = 1e-30


def lag_margin(attention: LagAttention) -> Tensor:
    """How clearly an auto-correlation chose its lags, `[batch]`.

    The difference between the last correlation it kept and the next, relative to the largest; 1
    where it kept all of them.
    """
    keep = attention.lags.shape[1]
    correlation = attention.correlation
    if keep == correlation.shape[1]:
        return torch.ones_like(correlation[:, 0])
    top = correlation.topk(keep + 1).values
    largest = correlation.abs().amax(dim=1).clamp_min(_TINY)
    return (top[:, keep - 1] - top[:, keep]) / largest


class ServingForm(nn.Module):
    """A model between its scaler and the inverse of it.

    The scaler stays an explicit subtraction and division: folded into the weights, data with a
    large offset would lose its precision, and auto-correlation its lags.

    Args:
        model: Standardised history to standardised forecast.
        scaler: Mean and standard deviation of each channel.
        kind: Whether the attention follows the forecast in the outputs.

    A model with auto-correlations has one more output, `margin` `[batch]`: the smallest
    `lag_margin` of its stages.
    """

    def __init__(self, model: Forecaster, scaler: Scaler, kind: GraphKind) -> None:
        super().__init__()
        self.model = model
        self.kind = kind
        self.has_margin = any(stage.kind == "autocorrelation" for stage in model.stages)
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
        names = ("forecast", MARGIN) if self.has_margin else ("forecast",)
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
        if self.kind == "forecast" and not self.has_margin:
            return (self.model(*inputs) * self.std + self.mean,)
        forecast, attention = self.model.explain(*inputs)
        outputs = [forecast * self.std + self.mean]
        if self.has_margin:
            outputs.append(_smallest_margin(attention))
        if self.kind == "explain":
            outputs += [part for stage in self.model.stages for part in attention[stage.name]]
        return tuple(outputs)


def _smallest_margin(attention: dict[str, Attention]) -> Tensor:
    margins = [lag_margin(seen) for seen in attention.values() if isinstance(seen, LagAttention)]
    return torch.stack(margins).amin(dim=0)
