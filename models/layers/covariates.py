"""Covariates as features, and the decoder that adds what they change to a forecast."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from foretell.bundle.covariates import Covariate, Covariates, features_of
from foretell.models.inputs import Inputs
from foretell.models.layers.repetition import at_each_step
from foretell.models.layers.window_norms import WindowNorm

# Sizes of the summary of the context: series that it is reduced to, and numbers for each.
_SERIES, _NUMBERS = 16, 4


class CovariateEncoder(nn.Module):
    """Codes to features: scaled numbers, booleans as 0 and 1, one feature for each category.

    Args:
        covariates: The covariates; past ones are channels and not encoded here.
        norm: Norm of numbers and booleans of the future covariates by those of the context.
    """

    def __init__(self, covariates: Covariates, norm: WindowNorm | None = None) -> None:
        super().__init__()
        self.future = CodeEncoder(covariates.future)
        self.static = CodeEncoder(covariates.static)
        self.norm = norm

    def forward(self, inputs: Inputs) -> dict[str, Tensor | None]:
        """Features by the name of their input; None where there are no covariates."""
        past, ahead = inputs.history_covariates, inputs.future_covariates
        found: dict[str, Tensor | None] = {"history_covariates": None, "future_covariates": None}
        if past is not None and ahead is not None:
            of_past, of_ahead = self.future.scaled(past), self.future.scaled(ahead)
            if self.norm is not None:
                of_past, statistics = self.norm(of_past)
                of_ahead = self.norm.normalise(of_ahead, statistics)
            found["history_covariates"] = self.future.features(past, of_past)
            found["future_covariates"] = self.future.features(ahead, of_ahead)
        return found | {"static_covariates": self.of_series(inputs)}

    def of_series(self, inputs: Inputs) -> Tensor | None:
        """Features of the static covariates, `[batch, features]`."""
        codes = inputs.static_covariates
        return None if codes is None else self.static.features(codes, self.static.scaled(codes))


class CodeEncoder(nn.Module):
    """Codes of covariates to their features.

    Args:
        covariates: The covariates, in the order of the codes.
    """

    def __init__(self, covariates: Sequence[Covariate]) -> None:
        super().__init__()
        self.covariates = tuple(covariates)
        self.mean = nn.Buffer(
            torch.tensor([each.mean or 0.0 for each in covariates]), persistent=False
        )
        self.std = nn.Buffer(torch.tensor([each.std for each in covariates]), persistent=False)
        # The code that each feature of a category stands for.
        for number, each in enumerate(covariates):
            if each.categories:
                codes = torch.arange(len(each.categories), dtype=torch.float32)
                self.register_buffer(f"codes_{number}", codes, persistent=False)

    def scaled(self, codes: Tensor) -> Tensor:
        """Codes with scaled numbers, both `[…, covariates]`."""
        return (codes - self.mean) / self.std

    def features(self, codes: Tensor, scaled: Tensor) -> Tensor:
        """`[…, features]` from codes and scaled numbers, both `[…, covariates]`."""
        parts = []
        for number, each in enumerate(self.covariates):
            part = slice(number, number + 1)
            if each.type == "category":
                known: Tensor = getattr(self, f"codes_{number}")
                parts.append((codes[..., part] == known).to(codes.dtype))
            else:
                parts.append(scaled[..., part])
        return torch.cat(parts, dim=-1)


class CovariateDecoder(nn.Module):
    """Addition to a normalised forecast, from the covariates of each step and its neighbours.

    In the manner of TiDE's temporal decoder (Das et al., 2023, arXiv:2304.08424): the same small
    network for every step of the horizon. Besides the covariates it reads their difference from
    the mean of the context, the calendar, static covariates, the forecast of the network, and a
    summary of the context, past covariates included. It begins as zero.

    Args:
        covariates: The covariates.
        context: Steps of the context.
        channels: Channels of the history.
        calendar: Number of calendar features.
        outputs: Outputs of the network for each step.
        width: Features of the hidden layer.
        neighbours: Steps before and after a step whose covariates are read.
    """

    def __init__(
        self,
        covariates: Covariates,
        *,
        context: int,
        channels: int,
        calendar: int,
        outputs: int,
        width: int,
        neighbours: int,
    ) -> None:
        super().__init__()
        self.neighbours = neighbours
        future = features_of(covariates.future)
        static = features_of(covariates.static)
        of_step = future * (2 * neighbours + 2) + static + calendar
        self.series = nn.Linear(channels + future, _SERIES)
        self.numbers = nn.Linear(context, _NUMBERS)
        self.hidden = nn.Linear(of_step + outputs + _SERIES * _NUMBERS, width)
        self.change = nn.Linear(width, outputs)
        self.direct = nn.Linear(of_step, outputs, bias=False) if of_step else None
        for zero in (self.change.weight, self.change.bias):
            nn.init.zeros_(zero)
        if self.direct is not None:
            nn.init.zeros_(self.direct.weight)

    def forward(self, inputs: Inputs, forecast: Tensor) -> Tensor:
        """Change of the forecast by the covariates.

        Args:
            inputs: Normalised history, calendars, and features of covariates.
            forecast: `[batch, horizon, outputs]`, outputs of the network.

        Returns:
            `[batch, horizon, outputs]`.
        """
        horizon = forecast.shape[1]
        series, of_step = [inputs.history], []
        if inputs.future_calendar is not None:
            of_step.append(inputs.future_calendar)
        past, ahead = inputs.history_covariates, inputs.future_covariates
        if past is not None and ahead is not None:
            series.append(past)
            of_step += [self._around(past, ahead), ahead - past.mean(dim=1, keepdim=True)]
        if inputs.static_covariates is not None:
            of_step.append(at_each_step(inputs.static_covariates, horizon))
        reduced = self.series(torch.cat(series, dim=2))
        summary = self.numbers(reduced.transpose(1, 2)).flatten(1)
        given = [*of_step, forecast, at_each_step(summary, horizon)]
        hidden = functional.relu(self.hidden(torch.cat(given, dim=2)))
        change: Tensor = self.change(hidden)
        if self.direct is not None:
            change = change + self.direct(torch.cat(of_step, dim=2))
        return change

    def _around(self, past: Tensor, ahead: Tensor) -> Tensor:
        """Covariates of each step of the horizon and its neighbours; the last step is repeated."""
        count, horizon = self.neighbours, ahead.shape[1]
        last = ahead[:, -1:].expand(-1, count, -1)
        steps = torch.cat([past[:, past.shape[1] - count :], ahead, last], dim=1)
        return torch.cat(
            [steps[:, start : start + horizon] for start in range(2 * count + 1)], dim=2
        )
