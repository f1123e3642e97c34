"""Embeddings of values, positions and calendar features."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor, nn

from foretell.models.layers.dropout import Dropout
from foretell.timeaxis.calendar import Calendar, Feature

CalendarKind = Literal["timeF", "learned", "fixed"]

# Rows of an integer feature's table: one more than its largest value.
TABLE_ROWS: dict[Feature, int] = {
    "quarter_hour": 4,
    "hour": 24,
    "day_of_week": 7,
    "day_of_month": 32,
    "month": 13,
}


def sinusoids(rows: int, d_model: int) -> Tensor:
    """`[rows, d_model]`: sines in even, cosines in odd columns (arXiv:1706.03762, section 3.5)."""
    position = torch.arange(rows, dtype=torch.float32)[:, None]
    rate = torch.exp(torch.arange(0, d_model, 2, dtype=torch.float32) * -math.log(1e4) / d_model)
    table = torch.empty(rows, d_model)
    table[:, 0::2] = torch.sin(position * rate)
    table[:, 1::2] = torch.cos(position * rate[: d_model // 2])
    return table


class TokenEmbedding(nn.Module):
    """Each step with its two neighbours, circular in time, to d_model features."""

    def __init__(self, channels: int, d_model: int) -> None:
        super().__init__()
        self.convolution = nn.Conv1d(
            channels, d_model, kernel_size=3, padding=1, padding_mode="circular", bias=False
        )
        nn.init.kaiming_normal_(self.convolution.weight, mode="fan_in", nonlinearity="leaky_relu")

    def forward(self, series: Tensor) -> Tensor:
        """`[batch, time, channels]` to `[batch, time, d_model]`."""
        return self.convolution(series.transpose(1, 2)).transpose(1, 2)  # type: ignore[no-any-return]


class CalendarEmbedding(nn.Module):
    """Calendar features, and the features of covariates behind them, to d_model features.

    Args:
        calendar: The calendar features, if any; scaled for `timeF`, integers otherwise.
        kind: `timeF` is one linear map; `learned` and `fixed` add one row a feature from tables
            that are trained or sinusoidal.
        d_model: Features of a token.
        covariates: Number of features of covariates, which have a linear map with every kind.
    """

    def __init__(
        self, calendar: Calendar | None, kind: CalendarKind, d_model: int, covariates: int = 0
    ) -> None:
        super().__init__()
        self.features = () if calendar is None else calendar.features
        mapped = covariates + (len(self.features) if kind == "timeF" else 0)
        self.linear = nn.Linear(mapped, d_model, bias=False) if mapped else None
        self.tables = nn.ModuleDict()
        if kind != "timeF":
            for feature in self.features:
                table = nn.Embedding(TABLE_ROWS[feature], d_model)
                if kind == "fixed":
                    table.weight = nn.Parameter(
                        sinusoids(TABLE_ROWS[feature], d_model), requires_grad=False
                    )
                self.tables[feature] = table

    def forward(self, calendar: Tensor) -> Tensor:
        """`[batch, time, features]` to `[batch, time, d_model]`."""
        if self.linear is not None and not self.tables:
            return self.linear(calendar)  # type: ignore[no-any-return]
        integers = len(self.features)
        rows = calendar[..., :integers].long()
        tokens = torch.stack(
            [self.tables[feature](rows[..., i]) for i, feature in enumerate(self.features)]
        ).sum(dim=0)
        return tokens if self.linear is None else tokens + self.linear(calendar[..., integers:])


class SeriesEmbedding(nn.Module):
    """Sum of value embedding, calendar embedding and, if wanted, sinusoidal positions.

    Args:
        channels: Series of the input.
        d_model: Features of a token.
        length: Steps of the input.
        calendar: Calendar features of each step, or None.
        kind: Kind of their embedding.
        positions: Add sinusoidal positions.
        dropout: Probability of dropping a feature in training.
        covariates: Number of features of covariates, behind those of the calendar.
    """

    def __init__(
        self,
        channels: int,
        d_model: int,
        length: int,
        *,
        calendar: Calendar | None,
        kind: CalendarKind,
        positions: bool,
        dropout: float,
        covariates: int = 0,
    ) -> None:
        super().__init__()
        self.value = TokenEmbedding(channels, d_model)
        self.calendar = None
        if calendar or covariates:
            self.calendar = CalendarEmbedding(calendar, kind, d_model, covariates)
        self.positions = (
            nn.Buffer(sinusoids(length, d_model), persistent=False) if positions else None
        )
        self.dropout = Dropout(dropout)

    def forward(self, series: Tensor, calendar: Tensor | None) -> Tensor:
        """Embed `[batch, time, channels]` and `[batch, time, features]` to `[…, d_model]`."""
        tokens = self.value(series)
        if self.calendar is not None:
            tokens = tokens + self.calendar(calendar)
        if self.positions is not None:
            tokens = tokens + self.positions
        return self.dropout(tokens)  # type: ignore[no-any-return]
