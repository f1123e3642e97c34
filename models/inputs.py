"""The inputs of a model, and its outputs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from torch import Tensor

from foretell.models.attention.evidence import Evidence, Parts, Single
from foretell.models.layers.scales import InstanceStatistics


class Inputs(NamedTuple):
    """Inputs of a model.

    Attributes:
        history: `[batch, context, channels]`, standardised; NaN where a value is missing, for
            models that read gaps.
        history_calendar: `[batch, context, features]`, for models with a calendar.
        future_calendar: `[batch, horizon, features]`, for models with a calendar.
        history_covariates: `[batch, context, future]`, codes of the future covariates
            (`foretell.bundle.covariates`).
        future_covariates: `[batch, horizon, future]`, their codes in the horizon.
        static_covariates: `[batch, static]`, codes of the static covariates.
    """

    history: Tensor
    history_calendar: Tensor | None = None
    future_calendar: Tensor | None = None
    history_covariates: Tensor | None = None
    future_covariates: Tensor | None = None
    static_covariates: Tensor | None = None


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
