"""What every architecture is to the rest of foretell."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Annotated, NamedTuple

import torch
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, SerializeAsAny
from torch import Tensor, nn
from typing_extensions import override

from foretell.bundle.attention import AttentionStage
from foretell.bundle.calendar import Calendar, Encoding
from foretell.bundle.frequency import Frequency
from foretell.models.attention.evidence import Evidence, Parts, Single
from foretell.models.registry import Registry


class Inputs(NamedTuple):
    """What a model reads.

    Attributes:
        history: `[batch, context, channels]`, standardised.
        history_calendar: `[batch, context, features]`, for models with a calendar.
        future_calendar: `[batch, horizon, features]`, likewise.
    """

    history: Tensor
    history_calendar: Tensor | None = None
    future_calendar: Tensor | None = None


class Explained(NamedTuple):
    """A forecast and what each attention stage looked at, by stage name; empty if nobody asked."""

    forecast: Tensor
    attention: dict[str, Single]

    @classmethod
    def of(cls, forecast: Tensor, seen: Mapping[str, Evidence | None]) -> Explained:
        """A forecast with the evidence that there is, by the names of stages."""
        found: dict[str, Single | None] = {}
        for name, one in seen.items():
            if isinstance(one, Parts):
                found |= {f"{name}.{part}": each for part, each in one.by_name.items()}
            else:
                found[name] = one
        return cls(forecast, {name: one for name, one in found.items() if one is not None})


class ForecasterConfig(BaseModel):
    """What every architecture needs to know; it fixes both state_dict and forward.

    What the fields of a family are is their `description`, the help of their flags.

    Attributes:
        architecture: The family; each family's config narrows it.
        channels: Series forecast together.
        context: Steps of history read.
        horizon: Steps forecast in one pass.
        calendar: Calendar features read, or None.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    architecture: str
    channels: int = Field(ge=1)
    context: int = Field(ge=1)
    horizon: int = Field(ge=1)
    calendar: Calendar | None = None

    @abstractmethod
    def build(self) -> Forecaster:
        """An untrained model."""

    @property
    def token_width(self) -> int:
        """Numbers that a layer makes of each token, by which memory is judged."""
        return 0

    @classmethod
    def calendar_for(
        cls,
        frequency: Frequency,  # noqa: ARG003 - of families that read one
        settings: dict[str, object],  # noqa: ARG003
    ) -> Calendar | None:
        """The calendar features that a model of this family reads of data.

        Args:
            frequency: Of the data.
            settings: What is set of the config.
        """
        return None


def calendar_of(frequency: Frequency, encoding: Encoding) -> Calendar | None:
    """The calendar features of a frequency; the timestamps of yearly data tell a model nothing."""
    calendar = Calendar.for_frequency(frequency, encoding)
    return calendar if calendar.features else None


class Forecaster(nn.Module, ABC):
    """A model from standardised history to standardised forecast.

    Attributes:
        config: What it was made of.
        stages: What `explain` returns, in the order in which it runs.
    """

    config: ForecasterConfig
    stages: tuple[AttentionStage, ...] = ()

    @abstractmethod
    def run(self, inputs: Inputs, *, explain: bool) -> Explained:
        """Forecast, and find out what was attended to if asked."""

    def example_inputs(self, batch: int, dtype: torch.dtype = torch.float32) -> tuple[Tensor, ...]:
        """Arguments of the right shapes, all zero: those that a model of its config reads."""
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
            The forecast `[batch, horizon, channels]`, standardised, and the evidence by stage.
        """
        return self.run(Inputs(history, history_calendar, future_calendar), explain=True)

    def learn(
        self,
        inputs: Inputs,
        target: Tensor,  # noqa: ARG002 - for those that are told what they should have said
        progress: float,  # noqa: ARG002 - likewise
    ) -> tuple[Tensor, Tensor]:
        """Forecast in training.

        Args:
            inputs: As in `run`.
            target: `[batch, horizon, channels]`, what is to be forecast.
            progress: How much of the training is done, from 0 to 1.

        Returns:
            The forecast, and what is added to its loss.
        """
        forecast = self(*inputs)
        return forecast, forecast.new_zeros(())

    @override
    def forward(
        self,
        history: Tensor,
        history_calendar: Tensor | None = None,
        future_calendar: Tensor | None = None,
    ) -> Tensor:
        """Forecast `[batch, horizon, channels]`; arguments as in `Inputs`."""
        inputs = Inputs(history, history_calendar, future_calendar)
        return self.run(inputs, explain=False).forecast


ARCHITECTURES: Registry[ForecasterConfig] = Registry(
    "foretell.models.architectures", "architecture", ForecasterConfig
)

AnyConfig = Annotated[SerializeAsAny[ForecasterConfig], BeforeValidator(ARCHITECTURES.read)]
