"""The interface between architectures and the rest of foretell."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import Tensor, nn
from typing_extensions import override

from foretell.bundle.attention import AttentionStage
from foretell.models.config import ForecasterConfig
from foretell.models.heads import Head
from foretell.models.inputs import Explained, Inputs
from foretell.models.layers.covariates import CovariateDecoder, CovariateEncoder
from foretell.models.layers.repetition import at_each_step


class Forecaster(nn.Module, ABC):
    """A model from standardised history to standardised forecast.

    A config may name a norm of windows around the network. `run` and `learn` read and return
    normalised values, and forecast all channels. All other methods read and return values without
    this norm, and forecast the targets only.

    Args:
        config: Configuration of the model.

    Attributes:
        config: Configuration of the model.
        stages: Stages that `explain` returns, in the order in which they run.
        window_norm: Norm of each window, if any.
    """

    config: ForecasterConfig
    stages: tuple[AttentionStage, ...] = ()

    def __init__(self, config: ForecasterConfig) -> None:
        super().__init__()
        self.config = config
        self.window_norm = config.build_window_norm()
        self.head = config.build_head()
        known = config.covariates
        self.covariate_encoder = (
            None if known is None else CovariateEncoder(known, config.build_covariate_norm())
        )
        self.covariate_decoder = None
        if known is not None and config.covariate_decoder:
            self.covariate_decoder = CovariateDecoder(
                known,
                context=config.context,
                channels=config.channels,
                calendar=config.calendar_features,
                outputs=config.parameters * config.channels,
                width=config.covariate_width,
                neighbours=config.covariate_neighbours,
            )
        places = None if config.targets is None else torch.tensor(config.targets)
        self._targets = None if places is None else nn.Buffer(places, persistent=False)

    @abstractmethod
    def run(self, inputs: Inputs, *, explain: bool) -> Explained:
        """Forecast, and return evidence if requested."""

    def example_inputs(self, batch: int, dtype: torch.dtype = torch.float32) -> Inputs:
        """Inputs of the right shapes for the config, all zero."""
        config = self.config
        shapes: dict[str, tuple[int, ...]] = {"history": (config.context, config.channels)}
        if config.calendar is not None:
            shapes["history_calendar"] = config.context, config.calendar_features
            shapes["future_calendar"] = config.horizon, config.calendar_features
        if config.covariates is not None:
            shapes |= config.covariates.shapes(config.context, config.horizon)
        return Inputs(**{n: torch.zeros(batch, *each, dtype=dtype) for n, each in shapes.items()})

    def explain(self, history: Tensor, *others: Tensor | None) -> Explained:
        """Forecast, and return what each stage of `stages` attended to; arguments as in `Inputs`.

        Returns:
            The forecast `[batch, horizon, targets]`, standardised, and the evidence by stage.
        """
        return self._forecast(Inputs(history, *others), explain=True)

    def learn(
        self,
        inputs: Inputs,
        target: Tensor,  # noqa: ARG002 - for those that read the target
        progress: float,  # noqa: ARG002 - likewise
    ) -> tuple[Tensor, Tensor]:
        """Forecast in training; an architecture that needs more than `run` overrides it.

        Args:
            inputs: As in `run`.
            target: `[batch, horizon, channels]`, values to forecast.
            progress: Share of the training that is done, from 0 to 1.

        Returns:
            The forecast, and a penalty to add to its loss.
        """
        forecast = self.run(inputs, explain=False).forecast
        return forecast, forecast.new_zeros(())

    def forecast_to_learn(
        self, inputs: Inputs, target: Tensor, progress: float
    ) -> tuple[Tensor, Tensor]:
        """Forecast for a trainer: `learn` between the normalisation and its reverse.

        Returns:
            The forecast `[batch, horizon, targets]`, or with a head its parameters on a further
            axis, and a penalty to add to its loss.
        """
        if self.head is not None:
            outputs = self._distribution(self.head, inputs, explain=False).trained_output
            return outputs, outputs.new_zeros(())
        if self.window_norm is None:
            forecast, penalty = self.learn(inputs, target, progress)
            return self._of_targets(self._with_covariates(inputs, forecast)), penalty
        history, statistics = self.window_norm(inputs.history)
        target = self.window_norm.normalise(target, statistics)
        inputs = inputs._replace(history=history)
        forecast, penalty = self.learn(inputs, target, progress)
        forecast = self._with_covariates(inputs, forecast)
        return self._of_targets(self.window_norm.reverse(forecast, statistics)), penalty

    @override
    def forward(self, history: Tensor, *others: Tensor | None) -> Tensor:
        """Forecast `[batch, horizon, targets]`; arguments as in `Inputs`."""
        return self.predict(Inputs(history, *others)).forecast

    def predict(self, inputs: Inputs) -> Explained:
        """Forecast without evidence, and with the distribution of a model with a head."""
        return self._forecast(inputs, explain=False)

    def _forecast(self, inputs: Inputs, *, explain: bool) -> Explained:
        if self.head is not None:
            return self._distribution(self.head, inputs, explain=explain)
        if self.window_norm is None:
            found = self._run(inputs, explain=explain)
            return found._replace(forecast=self._of_targets(found.forecast))
        history, statistics = self.window_norm(inputs.history)
        found = self._run(inputs._replace(history=history), explain=explain)
        forecast = self.window_norm.reverse(found.forecast, statistics)
        return found._replace(forecast=self._of_targets(forecast))

    def _distribution(self, head: Head, inputs: Inputs, *, explain: bool) -> Explained:
        """Forecast and parameters from the outputs of a network, `[batch, outputs, channels]`."""
        statistics: Any = None
        if self.window_norm is not None:
            history, statistics = self.window_norm(inputs.history)
            inputs = inputs._replace(history=history)
        found = self._run(inputs, explain=explain)
        outputs, anchor, norm = found.forecast, None, self.window_norm
        if norm is not None:
            outputs, norm, statistics = norm.unwrap(outputs, statistics)
        if head.is_of_values:
            outputs = head.values(outputs)
            outputs = outputs if norm is None else norm.reverse(outputs, statistics)
        elif norm is not None:
            anchor = norm.out(statistics)
        size, config = len(head.described.parameters), self.config
        raw = outputs.reshape(-1, size, config.horizon, config.channels).permute(0, 2, 3, 1)
        if found.anchor is not None:
            anchor = found.anchor if anchor is None else found.anchor.within(anchor)
        parameters = head.anchored(raw, anchor)
        if self._targets is not None:
            parameters = parameters.index_select(2, self._targets)
        return Explained(head.mean(parameters), found.attention, parameters)

    def _run(self, inputs: Inputs, *, explain: bool) -> Explained:
        """`run`, with what covariates change."""
        found = self.run(inputs, explain=explain)
        return found._replace(forecast=self._with_covariates(inputs, found.forecast))

    def _with_covariates(self, inputs: Inputs, outputs: Tensor) -> Tensor:
        """Outputs of the network, `[batch, parameters * horizon, channels]`, and the decoder's."""
        if self.covariate_decoder is None or self.covariate_encoder is None:
            return outputs
        steps, config = inputs._replace(**self.covariate_encoder(inputs)), self.config
        parts = outputs.reshape(-1, config.parameters, config.horizon, config.channels)
        by_step = parts.transpose(1, 2).flatten(2)
        change: Tensor = self.covariate_decoder(steps, by_step)
        by_parameter = change.reshape(-1, config.horizon, config.parameters, config.channels)
        return outputs + by_parameter.transpose(1, 2).flatten(1, 2)

    def with_time_features(self, inputs: Inputs, *, static: bool = True) -> Inputs:
        """Inputs whose calendars also have the features of covariates that the network reads.

        Args:
            inputs: Inputs of the network.
            static: Whether each step has the features of static covariates.
        """
        if self.covariate_encoder is None or self.covariate_decoder is not None:
            return inputs
        encoded = self.covariate_encoder(inputs)
        constant: Tensor | None = encoded["static_covariates"] if static else None
        joined: list[Tensor | None] = []
        for name, steps in (("history", self.config.context), ("future", self.config.horizon)):
            parts = [getattr(inputs, f"{name}_calendar"), encoded[f"{name}_covariates"]]
            if constant is not None:
                parts.append(at_each_step(constant, steps))
            known = [part for part in parts if part is not None]
            joined.append(torch.cat(known, dim=2) if known else None)
        return inputs._replace(history_calendar=joined[0], future_calendar=joined[1])

    def _of_targets(self, forecast: Tensor) -> Tensor:
        return forecast if self._targets is None else forecast.index_select(-1, self._targets)
