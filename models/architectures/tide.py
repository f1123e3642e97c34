"""TiDE: dense residual blocks around covariates (Das et al., 2023, arXiv:2304.08424).

Past covariates are the channels that are not forecast. The norms are as in NeuralForecast.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional
from typing_extensions import override

from foretell.bundle.covariates import features_of
from foretell.models.config import ARCHITECTURES, ForecasterConfig, calendar_of
from foretell.models.forecaster import Forecaster
from foretell.models.inputs import Explained, Inputs
from foretell.models.layers.dropout import Dropout
from foretell.timeaxis.calendar import Calendar
from foretell.timeaxis.frequency import Frequency


@ARCHITECTURES.add
class TideConfig(ForecasterConfig):
    """Configuration of a TiDE."""

    architecture: Literal["tide"] = "tide"
    has_heads: ClassVar[bool] = True
    reads_covariates: ClassVar[bool] = True
    takes_decoder: ClassVar[bool] = False
    d_model: int = Field(default=256, ge=1, description="Features inside of its blocks.")
    encoder_layers: int = Field(default=2, ge=1, description="Blocks of the encoder.")
    decoder_layers: int = Field(default=1, ge=1, description="Blocks of the decoder.")
    projection: int = Field(
        default=4, ge=1, description="Features that the covariates of a step are reduced to."
    )
    step_features: int = Field(
        default=16, ge=1, description="Features of a step that the temporal decoder reads."
    )
    step_width: int = Field(default=64, ge=1, description="Width of the temporal decoder.")
    dropout: float = Field(default=0.1, ge=0, lt=1, description="Probability of dropout.")
    layer_norm: bool = Field(default=True, description="Whether blocks end with a layer norm.")
    step_norm: bool = Field(
        default=False,
        description="Whether the temporal decoder ends with one, as in NeuralForecast; of one "
        "output per step it leaves a constant.",
    )

    @property
    @override
    def learning_rate(self) -> float:
        return 1e-3

    @property
    def future_features(self) -> int:
        """Number of features that are known for each step of context and horizon."""
        known = self.covariates.future if self.covariates else ()
        return features_of(known) + self.calendar_features

    @classmethod
    @override
    def calendar_for(cls, frequency: Frequency, settings: dict[str, object]) -> Calendar | None:
        return calendar_of(frequency, "scaled")

    @override
    def build(self) -> Forecaster:
        return Tide(self)

    def block(self, inputs: int, outputs: int, *, width: int = 0, last: bool = False) -> nn.Module:
        """An untrained block, of `d_model` features inside unless it has a width."""
        norm = self.step_norm if last else self.layer_norm
        return ResidualBlock(
            inputs, width or self.d_model, outputs, dropout=self.dropout, norm=norm
        )

    def blocks(self, inputs: int, outputs: int, count: int) -> nn.Sequential:
        """Untrained blocks, one after the other."""
        sizes = [inputs, *[self.d_model] * (count - 1), outputs]
        return nn.Sequential(*map(self.block, sizes[:-1], sizes[1:]))


class ResidualBlock(nn.Module):
    """A layer with ReLU, a linear map beside it, and a layer norm of their sum.

    Args:
        inputs: Features of the input.
        width: Features of the layer.
        outputs: Features of the output.
        dropout: Probability of dropping an output of the layer in training.
        norm: Whether it ends with a layer norm.
    """

    def __init__(
        self, inputs: int, width: int, outputs: int, *, dropout: float, norm: bool
    ) -> None:
        super().__init__()
        self.hidden, self.output = nn.Linear(inputs, width), nn.Linear(width, outputs)
        self.skip = nn.Linear(inputs, outputs)
        self.dropout = Dropout(dropout)
        self.norm = nn.LayerNorm(outputs) if norm else None

    def forward(self, features: Tensor) -> Tensor:
        """`[…, inputs]` to `[…, outputs]`."""
        found: Tensor = self.dropout(self.output(functional.relu(self.hidden(features))))
        found = found + self.skip(features)
        return found if self.norm is None else self.norm(found)


class Tide(Forecaster):
    """Forecasts each channel from its own past, past covariates and all that is known ahead."""

    config: TideConfig

    def __init__(self, config: TideConfig) -> None:
        super().__init__(config)
        past, future = len(config.other_channels), config.future_features
        static = features_of(config.covariates.static) if config.covariates else 0
        self.past_projection = config.block(past, config.projection) if past else None
        self.future_projection = config.block(future, config.projection) if future else None
        steps = config.context * bool(past) + (config.context + config.horizon) * bool(future)
        inputs = config.context + steps * config.projection + static
        self.encoder = config.blocks(inputs, config.d_model, config.encoder_layers)
        self.decoder = config.blocks(
            config.d_model, config.horizon * config.step_features, config.decoder_layers
        )
        self.temporal_decoder = config.block(
            config.step_features + config.projection * bool(future),
            config.parameters,
            width=config.step_width,
            last=True,
        )
        self.skip = nn.Linear(config.context, config.parameters * config.horizon)
        # Channels that are forecast come first, and go back to their places.
        order = torch.tensor([*config.target_channels, *config.other_channels])
        self._order = nn.Buffer(order, persistent=False) if past else None
        self._places = nn.Buffer(order.argsort(), persistent=False) if past else None

    @override
    def run(self, inputs: Inputs, *, explain: bool) -> Explained:
        config, history = self.config, inputs.history
        count = len(config.target_channels)
        shared: list[Tensor] = []
        if self.past_projection is not None and self._order is not None:
            history = history.index_select(2, self._order)
            shared.append(self.past_projection(history[:, :, count:]).flatten(1))
        if (future := self._future(inputs)) is not None:
            shared.append(future.flatten(1))
        if self.covariate_encoder is not None:
            static = self.covariate_encoder.of_series(inputs)
            shared += [] if static is None else [static]
        series = history[:, :, :count].transpose(1, 2)
        repeated = [part[:, None].expand(-1, count, -1) for part in shared]
        found = self.decoder(self.encoder(torch.cat([series, *repeated], dim=2)))
        steps = found.reshape(-1, count, config.horizon, config.step_features)
        if future is not None:
            ahead = future[:, None, config.context :].expand(-1, count, -1, -1)
            steps = torch.cat([steps, ahead], dim=3)
        by_step: Tensor = self.temporal_decoder(steps)
        outputs = by_step.transpose(2, 3).flatten(2) + self.skip(series)
        forecast = outputs.transpose(1, 2)
        if self._places is not None:
            forecast = functional.pad(forecast, (0, len(config.other_channels)))
            forecast = forecast.index_select(2, self._places)
        return Explained(forecast, {})

    def _future(self, inputs: Inputs) -> Tensor | None:
        """Projected features of context and horizon, `[batch, time, projection]`."""
        _, *steps = self.with_time_features(inputs, static=False)[:3]
        known = [each for each in steps if each is not None]
        if self.future_projection is None:
            return None
        return self.future_projection(torch.cat(known, dim=1))  # type: ignore[no-any-return]
