"""The function a bundle's graphs compute: the user's units in and out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

import torch
from torch import Tensor, nn

from foretell.bundle.attention import AttentionStage
from foretell.bundle.manifest import Scaler
from foretell.export.rewrites.choices import extremes, smallest_margin, smallest_of_many
from foretell.export.rewrites.reductions import smallest
from foretell.models.attention.evidence import Evidence
from foretell.models.forecaster import Forecaster

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

    A model that makes discrete choices has one more output, `margin` `[batch]`: how clear the least
    clear of them was (`smallest_margin`).
    """

    def __init__(self, model: Forecaster, scaler: Scaler, kind: GraphKind) -> None:
        super().__init__()
        self.model = model
        self.kind = kind
        self.has_margin = any(stage.choices for stage in model.stages)
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
        return (*names, *(name for stage in self.model.stages for name in stage.output_names))

    def example_inputs(self, batch: int) -> tuple[Tensor, ...]:
        """Inputs of the right shapes, all zero."""
        return self.model.example_inputs(batch)

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
            outputs.append(_margin(history, self.model.stages, attention))
        if self.kind == "explain":
            for stage in self.model.stages:
                outputs += [_part(stage, attention, name) for name in stage.output_names]
        return tuple(outputs)

    def _unscaled(self, forecast: Tensor) -> Tensor:
        return forecast * self.forecast_std + self.forecast_mean


def _part(stage: AttentionStage, attention: Mapping[str, Evidence], output: str) -> Tensor:
    """An output of a stage."""
    part: Tensor = getattr(attention[stage.name], output.removeprefix(f"{stage.name}."))
    return part


def _margin(
    history: Tensor, stages: Iterable[AttentionStage], attention: Mapping[str, Evidence]
) -> Tensor:
    """The smallest margin of all choices, `[batch]`; 1 where none leaves anything out."""
    flat: list[Tensor] = []
    margins: list[Tensor] = []
    for stage in stages:
        for choice in stage.choices:
            scores = _part(stage, attention, choice.scores)
            kept = _part(stage, attention, choice.chosen).shape[-1]
            if kept == scores.shape[-1]:
                continue
            found: Tensor | None = getattr(attention[stage.name], "extremes", None)
            if found is None:
                found = extremes(scores, kept)
            if found.ndim == 2:
                flat.append(found)
            else:
                margins.append(smallest_of_many(found))
    if flat:
        margins.append(smallest_margin(flat))
    if not margins:
        return torch.ones_like(history[:, 0, 0])
    return margins[0] if len(margins) == 1 else smallest(torch.stack(margins, dim=1))[:, 0]
