"""Parts of a decoder that forecasts some steps at a time, each from earlier ones."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from foretell.models.attention.evidence import Dense, Evidence
from foretell.models.layers.dropout import Dropout
from foretell.models.layers.embedding import CalendarEmbedding, CalendarKind, sinusoids
from foretell.timeaxis.calendar import Calendar

# A token is made from the value a chunk before its step, and this number of values before that.
BEFORE = 2
# Width of the diagonal that guidance leaves alone, as published.
_WIDTH = 0.2


class LaggedEmbedding(nn.Module):
    """Tokens of steps whose values are not known: earlier values, positions and calendar.

    Args:
        channels: Series of the input.
        d_model: Features of a token.
        length: Steps of the decoder.
        calendar: Calendar features of each step, or None.
        kind: Kind of their embedding.
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
        dropout: float,
        covariates: int = 0,
    ) -> None:
        super().__init__()
        self.value = nn.Linear((BEFORE + 1) * channels, d_model, bias=False)
        self.calendar = None
        if calendar or covariates:
            self.calendar = CalendarEmbedding(calendar, kind, d_model, covariates)
        self.positions = nn.Buffer(sinusoids(length, d_model), persistent=False)
        self.dropout = Dropout(dropout)

    def forward(self, known: Tensor, calendar: Tensor | None, start: int) -> Tensor:
        """Embed steps.

        Args:
            known: `[batch, BEFORE + time, channels]`, values one chunk earlier.
            calendar: `[batch, time, features]`, of the steps themselves.
            start: Number of the first step in the decoder.

        Returns:
            `[batch, time, d_model]`.
        """
        time = known.shape[1] - BEFORE
        joined = torch.cat([known[:, i : i + time] for i in range(BEFORE + 1)], dim=2)
        tokens = self.value(joined) + self.positions[start : start + time]
        if self.calendar is not None:
            tokens = tokens + self.calendar(calendar)
        return self.dropout(tokens)  # type: ignore[no-any-return]


def whole_map(evidence: Evidence | None, length: int) -> Tensor:
    """A map of some steps `[batch, heads, query, length]`, with columns for later keys."""
    # Mechanisms with a cache show maps.
    weights = cast("Dense", evidence).weights
    missing = length - weights.shape[-1]
    return functional.pad(weights, (0, missing)) if missing else weights


def off_diagonal(weights: Tensor) -> Tensor:
    """The mean weight far from the diagonal (guided attention, arXiv:1710.08969, eq. 1).

    Args:
        weights: `[batch, heads, query, key]`.

    Returns:
        A number from 0 to 1.
    """
    query, key = (torch.linspace(0, 1, size, device=weights.device) for size in weights.shape[-2:])
    far = 1 - torch.exp(-((query[:, None] - key).square()) / (2 * _WIDTH**2))
    return (weights * far).sum(dim=-1).mean()
