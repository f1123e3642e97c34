"""The embedding of a series as one linear map."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from foretell.export.rewrites.lookup import Call, rewrites
from foretell.models.layers.embedding import SeriesEmbedding, TokenEmbedding


def neighbours(length: int) -> Tensor:
    """`[3 * length]`: for each step the one before it, itself and the one after it, circular."""
    step = torch.arange(length)
    return torch.stack([step - 1, step, step + 1], dim=1).remainder(length).flatten()


def _joined(series: Tensor, places: Tensor) -> Tensor:
    """`[batch, time, channels]` to `[batch, time, 3 * channels]`, each with its neighbours."""
    shape = (-1, series.shape[1], 3 * series.shape[2])
    return series.index_select(1, places).reshape(shape)


def _of_neighbours(plain: TokenEmbedding) -> Tensor:
    """`[3 * channels, d_model]`, the neighbour as the slow index."""
    weight = plain.convolution.weight.detach()
    return weight.permute(2, 1, 0).flatten(0, 1).contiguous()


class ServedTokens(nn.Module):
    """A convolution with kernel 3 as a linear map of three neighbouring steps.

    Args:
        plain: The trained convolution.
        length: Steps of the series.
    """

    def __init__(self, plain: TokenEmbedding, length: int) -> None:
        super().__init__()
        self.weight = nn.Buffer(_of_neighbours(plain))
        self.neighbours = nn.Buffer(neighbours(length))

    def forward(self, series: Tensor) -> Tensor:
        """`[batch, time, channels]` to `[batch, time, d_model]`."""
        return _joined(series, self.neighbours) @ self.weight


class NeighbourEmbedding(nn.Module):
    """Maps each step joined with its neighbours and its calendar features.

    Equal because a convolution with kernel 3 is a linear map of three neighbouring steps, and so is
    the embedding of scaled calendar features. A Conv needs cuDNN on CUDA.

    Args:
        plain: The trained embedding; its positions, if it has any, are left to the caller.
    """

    def __init__(self, plain: SeriesEmbedding) -> None:
        super().__init__()
        weight = _of_neighbours(plain.value)
        self.calendar = plain.calendar
        # An embedding with tables of calendar features stays as it is.
        self.joined = plain.calendar is not None and not plain.calendar.tables
        if plain.calendar is not None and plain.calendar.linear is not None and self.joined:
            weight = torch.cat([weight, plain.calendar.linear.weight.detach().T])
        self.weight = nn.Buffer(weight)

    def forward(self, joined: Tensor, calendar: Tensor | None) -> Tensor:
        """Embed steps with their neighbours.

        Args:
            joined: `[batch, time, 3 * channels]`, or with the time first.
            calendar: `[batch, time, features]` likewise, or None.

        Returns:
            `[batch, time, d_model]` likewise.
        """
        if self.joined and calendar is not None:
            joined = torch.cat([joined, calendar], dim=2)
        tokens = joined @ self.weight
        if not self.joined and self.calendar is not None:
            tokens = tokens + self.calendar(calendar)
        return tokens


class ServedEmbedding(nn.Module):
    """An embedding of a series, called like the plain one.

    Args:
        plain: The trained embedding.
        length: Steps of the series.
        time_first: Whether tokens are `[time * batch, d_model]`.
    """

    def __init__(self, plain: SeriesEmbedding, length: int, *, time_first: bool = False) -> None:
        super().__init__()
        self.embedding = NeighbourEmbedding(plain)
        self.neighbours = nn.Buffer(neighbours(length))
        self.time_first = time_first
        positions: Tensor | None = plain.positions
        if time_first and positions is not None:
            positions = positions[:, None]
        self.positions = None if positions is None else nn.Buffer(positions)

    def forward(self, series: Tensor, calendar: Tensor | None) -> Tensor:
        """Embed `[batch, time, channels]` and `[batch, time, features]` to `[…, d_model]`."""
        joined = _joined(series, self.neighbours)
        if self.time_first:
            joined = joined.transpose(0, 1)
            calendar = None if calendar is None else calendar.transpose(0, 1)
        tokens: Tensor = self.embedding(joined, calendar)
        if self.positions is not None:
            tokens = tokens + self.positions
        return tokens.flatten(0, 1) if self.time_first else tokens


@rewrites(SeriesEmbedding)
def rewrite_embedding(plain: SeriesEmbedding, call: Call) -> nn.Module:
    """Embed by one linear map."""
    return ServedEmbedding(plain, call.shapes[0][1])


@rewrites(TokenEmbedding)
def rewrite_tokens(plain: TokenEmbedding, call: Call) -> nn.Module:
    """Convolve by one linear map."""
    return ServedTokens(plain, call.shapes[0][1])
