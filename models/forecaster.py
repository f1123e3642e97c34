"""The interface between architectures and the rest of foretell."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, NamedTuple, Self

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
from foretell.models.attention.evidence import Evidence, Parts, Single
from foretell.models.heads import HEADS, MEDIAN, OF_LEVELS, Head, HeadName
from foretell.models.layers.scales import InstanceStatistics
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


class Inputs(NamedTuple):
    """Inputs of a model.

    Attributes:
        history: `[batch, context, channels]`, standardised; NaN where a value is missing, for
            models that read gaps.
        history_calendar: `[batch, context, features]`, for models with a calendar.
        future_calendar: `[batch, horizon, features]`, for models with a calendar.
    """

    history: Tensor
    history_calendar: Tensor | None = None
    future_calendar: Tensor | None = None


class Explained(NamedTuple):
    """A forecast, and the evidence of its attention if requested.

    Attributes:
        forecast: Outputs of a network, or the forecast made from them.
        attention: Evidence by the name of the stage; empty if not requested.
        distribution: Parameters `[batch, horizon, targets, parameters]`, of a model with a head.
        anchor: Shift and scale of the distributions, from a network with a head that scales windows
            itself.
    """

    forecast: Tensor
    attention: dict[str, Single]
    distribution: Tensor | None = None
    anchor: InstanceStatistics | None = None

    @property
    def trained_output(self) -> Tensor:
        """The output that training evaluates: the distribution, or else the forecast."""
        return self.forecast if self.distribution is None else self.distribution

    @classmethod
    def of(cls, forecast: Tensor, seen: Mapping[str, Evidence | None]) -> Explained:
        """A forecast with the evidence that exists, by the names of stages."""
        found: dict[str, Single | None] = {}
        for name, one in seen.items():
            if isinstance(one, Parts):
                found |= {f"{name}.{part}": each for part, each in one.by_name.items()}
            else:
                found[name] = one
        return cls(forecast, {name: one for name, one in found.items() if one is not None})


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

    # Whether its networks return `horizon` values of every parameter, one parameter after the
    # other.
    has_heads: ClassVar[bool] = False

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
        places = None if config.targets is None else torch.tensor(config.targets)
        self._targets = None if places is None else nn.Buffer(places, persistent=False)

    @abstractmethod
    def run(self, inputs: Inputs, *, explain: bool) -> Explained:
        """Forecast, and return evidence if requested."""

    def example_inputs(self, batch: int, dtype: torch.dtype = torch.float32) -> tuple[Tensor, ...]:
        """Arguments of the right shapes for the config, all zero."""
        config = self.config
        history = torch.zeros(batch, config.context, config.channels, dtype=dtype)
        if config.calendar is None:
            return (history,)
        features = len(config.calendar.features)
        return history, *(
            torch.zeros(batch, steps, features, dtype=dtype)
            for steps in (config.context, config.horizon)
        )

    def explain(
        self,
        history: Tensor,
        history_calendar: Tensor | None = None,
        future_calendar: Tensor | None = None,
    ) -> Explained:
        """Forecast, and return what each stage of `stages` attended to; arguments as in `Inputs`.

        Returns:
            The forecast `[batch, horizon, targets]`, standardised, and the evidence by stage.
        """
        return self._forecast(Inputs(history, history_calendar, future_calendar), explain=True)

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
            return self._of_targets(forecast), penalty
        history, statistics = self.window_norm(inputs.history)
        target = self.window_norm.normalise(target, statistics)
        forecast, penalty = self.learn(inputs._replace(history=history), target, progress)
        return self._of_targets(self.window_norm.reverse(forecast, statistics)), penalty

    @override
    def forward(
        self,
        history: Tensor,
        history_calendar: Tensor | None = None,
        future_calendar: Tensor | None = None,
    ) -> Tensor:
        """Forecast `[batch, horizon, targets]`; arguments as in `Inputs`."""
        return self.predict(Inputs(history, history_calendar, future_calendar)).forecast

    def predict(self, inputs: Inputs) -> Explained:
        """Forecast without evidence, and with the distribution of a model with a head."""
        return self._forecast(inputs, explain=False)

    def _forecast(self, inputs: Inputs, *, explain: bool) -> Explained:
        if self.head is not None:
            return self._distribution(self.head, inputs, explain=explain)
        if self.window_norm is None:
            found = self.run(inputs, explain=explain)
            return found._replace(forecast=self._of_targets(found.forecast))
        history, statistics = self.window_norm(inputs.history)
        found = self.run(inputs._replace(history=history), explain=explain)
        forecast = self.window_norm.reverse(found.forecast, statistics)
        return found._replace(forecast=self._of_targets(forecast))

    def _distribution(self, head: Head, inputs: Inputs, *, explain: bool) -> Explained:
        """Forecast and parameters from the outputs of a network, `[batch, outputs, channels]`."""
        statistics: Any = None
        if self.window_norm is not None:
            history, statistics = self.window_norm(inputs.history)
            inputs = inputs._replace(history=history)
        found = self.run(inputs, explain=explain)
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

    def _of_targets(self, forecast: Tensor) -> Tensor:
        return forecast if self._targets is None else forecast.index_select(-1, self._targets)


ARCHITECTURES: Registry[ForecasterConfig] = Registry(
    "foretell.models.architectures", "architecture", ForecasterConfig
)

AnyConfig = Annotated[SerializeAsAny[ForecasterConfig], BeforeValidator(ARCHITECTURES.read)]
