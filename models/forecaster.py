"""The interface between architectures and the rest of foretell."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Annotated, Any, ClassVar, Self

import torch
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SerializeAsAny,
    model_validator,
)
from torch import Tensor, nn
from typing_extensions import override

from foretell.bundle.attention import AttentionStage
from foretell.bundle.covariates import Covariates, features_of
from foretell.models.heads import HEADS, MEDIAN, OF_LEVELS, Head, HeadName
from foretell.models.inputs import Explained, Inputs
from foretell.models.layers.covariates import CovariateDecoder, CovariateEncoder
from foretell.models.layers.repetition import at_each_step
from foretell.models.layers.window_norms import (
    WindowNorm,
    WindowNormName,
    anchors_by_revin,
    build_window_norm,
    takes_affine,
)
from foretell.models.registry import Registry
from foretell.timeaxis.calendar import Calendar, Encoding
from foretell.timeaxis.frequency import Frequency


def _listed(levels: object) -> object:
    """List of the values that a flag separates by commas."""
    return levels.split(",") if isinstance(levels, str) else levels


NormOfWindows = Annotated[
    WindowNormName | None,
    Field(
        description="Norm of each window: mean or last subtracts that value and divides by the "
        "standard deviation (RevIN), other names are scalers of NeuralForecast. A+B puts B within "
        "A; none leaves windows unchanged. Training uses mean by default.",
    ),
]


class ForecasterConfig(BaseModel):
    """Settings of every architecture, which determine both state_dict and forward.

    Fields of a family have a `description`, which is the help of their flags.

    Attributes:
        architecture: Family; each family's config narrows it.
        channels: Series read together.
        targets: Places of the channels that are forecast; None for all.
        context: Steps of history read.
        horizon: Steps forecast in one pass.
        calendar: Calendar features read, or None.
        window_norm: Norm of each window before the network, which is undone after it
            (`foretell.models.layers.window_norms`).
        affine: Whether RevIN in `window_norm` has trained parameters.
        head: The distributions or quantiles that it forecasts, or None for values.
        levels: Levels of the quantiles.
        covariates: Future, past and static covariates, or None. Past ones are channels.
        covariate_norm: Norm of the future covariates of each window, by those of the context.
        covariate_decoder: Whether a decoder reads the covariates, instead of the network, and adds
            to its forecast.
        covariate_width: Features of that decoder.
        covariate_neighbours: Steps before and after a step whose covariates it reads.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    architecture: str
    channels: int = Field(ge=1)
    targets: tuple[int, ...] | None = Field(default=None, min_length=1)
    context: int = Field(ge=1)
    horizon: int = Field(ge=1)
    calendar: Calendar | None = None
    window_norm: NormOfWindows = None
    affine: bool = Field(default=False, description="Whether RevIN has trained parameters.")
    head: HeadName | None = Field(
        default=None,
        description="Distributions to forecast, or none for values. Names with neuralforecast use "
        "its rules for parameters. Quantiles need levels.",
    )
    levels: Annotated[tuple[float, ...], BeforeValidator(_listed)] | None = Field(
        default=None,
        description="Levels of a head of quantiles, such as 0.1,0.5,0.9, with the median.",
    )
    covariates: Covariates | None = None
    covariate_norm: WindowNormName | None = Field(
        default=None,
        description="Norm of numbers among the future covariates of each window, by those of the "
        "context; names as of window_norm.",
    )
    covariate_decoder: bool = Field(
        default=False,
        description="Whether a decoder reads the covariates, instead of the network, and adds to "
        "its forecast; needed by architectures that do not read covariates themselves.",
    )
    covariate_width: int = Field(
        default=64, ge=1, description="Features of the decoder of covariates."
    )
    covariate_neighbours: int = Field(
        default=1,
        ge=0,
        description="Steps before and after each step whose covariates that decoder reads.",
    )

    # Whether its networks return `horizon` values of every parameter, one parameter after the
    # other.
    has_heads: ClassVar[bool] = False
    # Whether its networks read future and static covariates themselves.
    reads_covariates: ClassVar[bool] = False
    # Whether a decoder may read them instead.
    takes_decoder: ClassVar[bool] = True

    @model_validator(mode="after")
    def _check_targets(self) -> Self:
        places = set(self.targets or ())
        if self.targets and self.targets != tuple(sorted(places & {*range(self.channels)})):
            raise ValueError(f"targets: expected places among {self.channels} channels, in order")
        return self

    @model_validator(mode="after")
    def _check_window_norm(self) -> Self:
        if self.affine and not takes_affine(self.window_norm or ""):
            raise ValueError("affine: needs window_norm mean or last")
        return self

    @model_validator(mode="after")
    def _check_head(self) -> Self:
        if (self.head in OF_LEVELS) != (self.levels is not None):
            raise ValueError("levels: a head of quantiles needs them, no other has any")
        if self.head is not None and not self.has_heads:
            raise ValueError(f"head: {self.architecture} forecasts values alone")
        head = self.build_head()
        if head is None:
            return self
        if not head.is_of_values and self.affine and anchors_by_revin(self.window_norm or ""):
            raise ValueError(
                "affine: with a head, RevIN must be within another norm (identity+mean), because "
                "it may change the sign of scales"
            )
        return self

    @model_validator(mode="after")
    def _check_covariates(self) -> Self:
        known = self.covariates
        if self.covariate_decoder and known is None:
            raise ValueError("covariate_decoder: there are no covariates")
        if self.covariate_decoder and not self.takes_decoder:
            raise ValueError(
                f"covariate_decoder: {self.architecture} reads covariates itself; leave it out"
            )
        if self.covariate_neighbours > self.context:
            raise ValueError(f"covariate_neighbours: expected at most the context {self.context}")
        if known is None or self.covariate_decoder or self.reads_all_covariates:
            return self
        if known.future or known.static:
            raise ValueError(
                f"covariates: {self.architecture} does not read them itself; set covariate_decoder"
            )
        return self

    @property
    def reads_all_covariates(self) -> bool:
        """Whether the network needs no decoder for its future and static covariates."""
        return self.reads_covariates

    @property
    def covariate_features(self) -> int:
        """Number of features of covariates that a network reads at each step itself."""
        if self.covariates is None or self.covariate_decoder or not self.reads_covariates:
            return 0
        return features_of((*self.covariates.future, *self.covariates.static))

    @property
    def parameters(self) -> int:
        """Number of outputs of a network for each step and channel."""
        head = self.build_head()
        return 1 if head is None else head.size

    def build_head(self) -> Head | None:
        """The head that reads the network's outputs; None for values as they are."""
        if self.head is None:
            return None
        if self.levels is None:
            return HEADS[self.head]
        head = OF_LEVELS[self.head](self.levels)
        if MEDIAN not in head.levels:
            raise ValueError(
                f"levels: expected the median, {MEDIAN}, among them, which is the forecast; got "
                f"{', '.join(map(str, head.levels))}"
            )
        return head

    @abstractmethod
    def build(self) -> Forecaster:
        """An untrained model."""

    def build_window_norm(self) -> WindowNorm | None:
        """The untrained norm of windows, if any."""
        if self.window_norm is None:
            return None
        return build_window_norm(self.window_norm, self.channels, affine=self.affine)

    def build_covariate_norm(self) -> WindowNorm | None:
        """The norm of the future covariates of windows, if any."""
        if self.covariate_norm is None or self.covariates is None:
            return None
        return build_window_norm(self.covariate_norm, len(self.covariates.future), affine=False)

    @property
    def observed_steps(self) -> int | None:
        """Number of last steps in which each channel must have a value, if a model reads gaps.

        All other values of a history may be missing (NaN). None if the model needs all values.
        """
        return None

    @property
    def learning_rate(self) -> float:
        """Default peak of the learning rate."""
        return 5e-3

    @property
    def token_width(self) -> int:
        """Numbers that a layer computes for each token, to estimate memory."""
        return 0

    @classmethod
    def calendar_for(
        cls,
        frequency: Frequency,  # noqa: ARG003 - of families that read one
        settings: dict[str, object],  # noqa: ARG003
    ) -> Calendar | None:
        """Calendar features that a model of this family reads.

        Args:
            frequency: Frequency of the data.
            settings: Fields of the config that are set.
        """
        return None


def calendar_of(frequency: Frequency, encoding: Encoding) -> Calendar | None:
    """Calendar features of a frequency; None without any, as for yearly data."""
    calendar = Calendar.for_frequency(frequency, encoding)
    return calendar if calendar.features else None


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
                calendar=len(config.calendar.features) if config.calendar else 0,
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
            features = len(config.calendar.features)
            shapes["history_calendar"] = config.context, features
            shapes["future_calendar"] = config.horizon, features
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


ARCHITECTURES: Registry[ForecasterConfig] = Registry(
    "foretell.models.architectures", "architecture", ForecasterConfig
)

AnyConfig = Annotated[SerializeAsAny[ForecasterConfig], BeforeValidator(ARCHITECTURES.read)]
