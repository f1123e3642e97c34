"""Scalers of windows in operators that CUDA has kernels for."""

from __future__ import annotations

import torch
from torch import Tensor
from typing_extensions import override

from foretell.export.rewrites.lookup import form_of
from foretell.models.layers.normalization import InstanceStatistics
from foretell.models.layers.window_norms import InvariantScaler, RobustScaler


@form_of(InvariantScaler)
class LogarithmicScaler(RobustScaler):
    """The inverse hyperbolic sine by its logarithm, the sine by exponentials.

    Args:
        plain: The trained scaler, which has no parameters.
    """

    def __init__(self, plain: InvariantScaler) -> None:  # noqa: ARG002 - what a form is made of
        super().__init__()

    @override
    def normalise(self, series: Tensor, statistics: InstanceStatistics) -> Tensor:
        scaled = super().normalise(series, statistics)
        size = scaled.abs()
        return scaled.sign() * torch.log(size + torch.sqrt(size * size + 1))

    @override
    def reverse(self, forecast: Tensor, statistics: InstanceStatistics) -> Tensor:
        return super().reverse((forecast.exp() - (-forecast).exp()) / 2, statistics)
