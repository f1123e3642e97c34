"""DLinear: one linear map of the trend and one of the rest (Zeng et al., 2023, arXiv:2205.13504).

The baseline that attention has to beat. It has no attention and shows no evidence.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar, Literal, Self, cast

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn
from typing_extensions import override

from foretell.models.config import ARCHITECTURES, ForecasterConfig
from foretell.models.forecaster import Forecaster
from foretell.models.inputs import Explained, Inputs
from foretell.models.layers.decomposition import SeriesDecomposition, check_kernel


@ARCHITECTURES.add
class DLinearConfig(ForecasterConfig):
    """Configuration of a DLinear."""

    architecture: Literal["dlinear"] = "dlinear"
    has_heads: ClassVar[bool] = True
    moving_average: int = Field(default=25, ge=1, description="Steps of the moving average, odd.")
    individual: bool = Field(
        default=False, description="Each channel has its own map to the horizon."
    )

    @model_validator(mode="after")
    def _check_kernel(self) -> Self:
        check_kernel("moving_average", self.moving_average)
        if self.calendar is not None:
            raise ValueError("calendar: DLinear reads no calendar features")
        return self

    @override
    def build(self) -> Forecaster:
        return DLinear(self)


class DLinear(Forecaster):
    """Forecasts trend and rest, and adds them."""

    config: DLinearConfig

    def __init__(self, config: DLinearConfig) -> None:
        super().__init__(config)
        self.decomposition = SeriesDecomposition(config.moving_average)
        self.seasonal = self._maps()
        self.trend = self._maps()

    @override
    def run(self, inputs: Inputs, *, explain: bool) -> Explained:
        seasonal, trend = self.decomposition(inputs.history)
        forecast = self._map(self.seasonal, seasonal) + self._map(self.trend, trend)
        return Explained(forecast.transpose(1, 2), {})

    def _maps(self) -> nn.Module:
        """Maps from context to horizon, for all channels or each; they start as the mean."""
        config = self.config
        maps = [
            nn.Linear(config.context, config.parameters * config.horizon)
            for _ in range(config.channels if config.individual else 1)
        ]
        for one in maps:
            nn.init.constant_(one.weight, 1 / config.context)
        return nn.ModuleList(maps) if config.individual else maps[0]

    def _map(self, maps: nn.Module, series: Tensor) -> Tensor:
        """`[batch, context, channels]` to `[batch, channels, parameters * horizon]`."""
        by_channel = series.transpose(1, 2)
        if not self.config.individual:
            return maps(by_channel)  # type: ignore[no-any-return]
        each = cast("Iterable[nn.Linear]", maps)
        weight = torch.stack([one.weight.T for one in each])
        bias = torch.stack([one.bias for one in each])
        return (by_channel.transpose(0, 1) @ weight).transpose(0, 1) + bias
