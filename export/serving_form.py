"""The function a bundle's graphs compute: the user's units in and out."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import torch
from torch import Tensor, nn

from foretell.bundle.manifest import Scaler
from foretell.export.rewrites.auto_correlation import FoldedAutoCorrelation
from foretell.export.rewrites.lag_choice import smallest_margin
from foretell.models.forecaster import Attention, Forecaster, LagAttention

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
        self.has_margin = any(isinstance(part, FoldedAutoCorrelation) for part in model.modules())
        # Repeated for each step: onnxruntime broadcasts long rows faster than short ones.
        for part, steps in (
            ("history", model.config.context),
            ("forecast", model.config.horizon),
        ):
            for name, values in (("mean", scaler.mean), ("std", scaler.std)):
                row = torch.tensor(values, dtype=torch.float32)
                self.register_buffer(f"{part}_{name}", row.repeat(steps, 1))
        self.history_mean: Tensor
        self.history_std: Tensor
        self.forecast_mean: Tensor
        self.forecast_std: Tensor

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
        scaled = (history - self.history_mean) / self.history_std
        inputs = (scaled, history_calendar, future_calendar)
        if self.kind == "forecast" and not self.has_margin:
            return (self._unscaled(self.model(*inputs)),)
        forecast, attention = self.model.explain(*inputs)
        outputs = [self._unscaled(forecast)]
        if self.has_margin:
            outputs.append(_margin(history, attention.values()))
        if self.kind == "explain":
            for stage in self.model.stages:
                parts = attention[stage.name]._asdict()
                outputs += [parts[name.removeprefix(f"{stage.name}.")] for name in stage.outputs]
        return tuple(outputs)

    def _unscaled(self, forecast: Tensor) -> Tensor:
        return forecast * self.forecast_std + self.forecast_mean


def _margin(history: Tensor, attention: Iterable[Attention]) -> Tensor:
    """The smallest margin of all auto-correlations, `[batch]`; 1 where they keep all lags."""
    extremes = [
        seen.extremes
        for seen in attention
        if isinstance(seen, LagAttention) and seen.extremes is not None
    ]
    return smallest_margin(extremes) if extremes else torch.ones_like(history[:, 0, 0])
