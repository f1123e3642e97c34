"""The function a bundle's graphs compute: the user's units in and out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from foretell.bundle.attention import AttentionStage
from foretell.bundle.bounds import Limits
from foretell.bundle.scaler import Scaler
from foretell.export.rewrites.conditioning import clearness_of_norms
from foretell.export.rewrites.margins import extremes, smallest_margin
from foretell.models.attention.evidence import Evidence
from foretell.models.forecaster import Forecaster
from foretell.models.inputs import Inputs

GraphKind = Literal["forecast", "explain"]

MARGIN = "margin"
DISTRIBUTION = "distribution"


class ServingForm(nn.Module):
    """A model between its scaler and the inverse of it.

    The scaler stays an explicit subtraction and division: folded into the weights, data with a
    large offset would lose its precision, and auto-correlation its lags.

    Args:
        model: Model from standardised history to standardised forecast.
        scaler: Mean and standard deviation of each channel.
        kind: Whether the attention follows the forecast in the outputs.
        limits: Limits of forecasts; None for no limits.

    Attributes:
        explains: Whether the model computes its attention, even if that is not an output.
        input_names: Names of the inputs, in order.

    A model that makes discrete choices has one more output, `margin` `[batch]`: that of its least
    clear choice (`smallest_margin`). It is 0 if a seasonal norm amplifies rounding errors so much
    that a forecast shows them (`clearness_of_norms`). A model with a head has `distribution`
    `[batch, horizon, targets, parameters]` after the forecast. The forecast is its mean, and only
    the forecast is bounded.
    """

    def __init__(
        self, model: Forecaster, scaler: Scaler, kind: GraphKind, limits: Limits | None = None
    ) -> None:
        super().__init__()
        self.model = model
        self.kind = kind
        self.has_margin = any(stage.choices for stage in model.stages)
        example = model.example_inputs(1)._asdict()
        self.input_names = tuple(name for name, part in example.items() if part is not None)
        self.explains = kind == "explain" or self.has_margin or model.head is not None

        def rows(values: Sequence[float] | NDArray[np.float64], steps: int) -> Tensor:
            """Repeated for each step: onnxruntime broadcasts long rows faster than short ones."""
            return nn.Buffer(torch.as_tensor(values, dtype=torch.float32).repeat(steps, 1))

        context, horizon = model.config.context, model.config.horizon
        self.history_mean, self.history_std = rows(scaler.mean, context), rows(scaler.std, context)
        known = scaler.of(model.config.targets)
        self.forecast_mean, self.forecast_std = rows(known.mean, horizon), rows(known.std, horizon)
        self.low = None if limits is None else rows(limits.low, horizon)
        self.high = None if limits is None else rows(limits.high, horizon)

    @property
    def output_names(self) -> tuple[str, ...]:
        """Names of the outputs, in order."""
        names: tuple[str, ...] = ("forecast",)
        names += (DISTRIBUTION,) if self.model.head is not None else ()
        names += (MARGIN,) if self.has_margin else ()
        if self.kind == "forecast":
            return names
        return (*names, *(name for stage in self.model.stages for name in stage.output_names))

    def example_inputs(self, batch: int) -> tuple[Tensor, ...]:
        """Inputs of the right shapes, all zero, in the order of `input_names`."""
        return tuple(part for part in self.model.example_inputs(batch) if part is not None)

    def forward(self, *given: Tensor) -> tuple[Tensor, ...]:
        """Forecast `[batch, horizon, targets]`.

        Args:
            given: One tensor for each of `input_names`. In `history` a missing value is NaN, if the
                model may lack values.

        Returns:
            One tensor for each of `output_names`.
        """
        inputs = Inputs(**dict(zip(self.input_names, given, strict=True)))
        inputs = inputs._replace(history=(inputs.history - self.history_mean) / self.history_std)
        head = self.model.head
        if not self.explains:
            return (self._unscaled(self.model(*inputs)),)
        with clearness_of_norms(self.model) as norms:
            forecast, attention, parameters, _ = self.model.explain(*inputs)
        outputs = [self._unscaled(forecast)]
        if head is not None and parameters is not None:
            parameters = head.scaled(parameters, self.forecast_mean, self.forecast_std)
            outputs = [self._bounded(head.mean(parameters)), parameters]
        if self.has_margin:
            margin = _margin(outputs[0], self.model.stages, attention)
            outputs.append(torch.stack([margin, *norms], dim=1).amin(dim=1))
        if self.kind == "explain":
            for stage in self.model.stages:
                outputs += [_part(stage, attention, name) for name in stage.output_names]
        return tuple(outputs)

    def _unscaled(self, forecast: Tensor) -> Tensor:
        return self._bounded(forecast * self.forecast_std + self.forecast_mean)

    def _bounded(self, values: Tensor) -> Tensor:
        if self.low is None or self.high is None:
            return values
        return torch.minimum(torch.maximum(values, self.low), self.high)


def _part(stage: AttentionStage, attention: Mapping[str, Evidence], output: str) -> Tensor:
    """An output of a stage."""
    part: Tensor = getattr(attention[stage.name], output.removeprefix(f"{stage.name}."))
    return part


def _margin(
    forecast: Tensor, stages: Iterable[AttentionStage], attention: Mapping[str, Evidence]
) -> Tensor:
    """The smallest margin of all choices, `[batch]`; 1 if no choice leaves a candidate out."""
    found = []
    for stage in stages:
        for choice in stage.choices:
            scores = _part(stage, attention, choice.scores)
            kept = _part(stage, attention, choice.chosen).shape[-1]
            if kept < scores.shape[-1]:
                known: Tensor | None = getattr(attention[stage.name], "extremes", None)
                shifted = stage.form == "circulant"
                found.append(
                    extremes(scores, kept, to_zero=not shifted) if known is None else known
                )
    # A one for each window, without the arithmetic of shapes of `ones`.
    return smallest_margin(found) if found else 1 + 0 * forecast[:, 0, 0]
