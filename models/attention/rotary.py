"""Rotary positions: scores depend on the distance of key and query (arXiv:2104.09864)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from typing_extensions import override

from foretell.models.attention.heads import BiasedConfig, positions
from foretell.models.attention.mechanism import MECHANISMS, Attended, Call, Site
from foretell.models.attention.softmax import MultiHeadAttention

Pairs = Literal["halves", "neighbours"]


@MECHANISMS.add
class Rotary(BiasedConfig):
    """Softmax of queries and keys that are rotated by their positions (Su et al., 2021).

    Section 3.2.2: pair `i` of the `d` features of a head is turned by `position * base ** (-2i/d)`,
    so that the product of a query and a key depends on the distance of their positions alone.

    Positions are steps or patches, on a common clock for a decoder and its memory, or numbers of
    channels. On a grid, as in CroCo (Weinzaepfel et al., 2023, arXiv:2211.10408), the first half of
    a head is turned by the row and the second half by the column.

    Attributes:
        base: Base of the powers.
        pairs: Neighbours, as in the paper, or features half apart, as in most code.
        grid_columns: Number of positions in a row of the grid; one line if not given.
    """

    mechanism: Literal["rotary"] = "rotary"
    base: float = Field(
        default=10000, gt=1, description="Pair i of d features turns by base ** (-2i / d) per step."
    )
    pairs: Pairs = Field(
        default="halves", description="Features that turn together: half apart, or neighbours."
    )
    grid_columns: int | None = Field(
        default=None,
        ge=1,
        description="Positions in a row of a grid, such as 24 hours; one line if not given.",
    )

    has_causal: ClassVar[bool] = True

    @override
    def check(self, site: Site) -> None:
        super().check(site)
        features = site.head_width
        even = 2 if self.grid_columns is None else 4
        if features % even:
            raise ValueError(f"heads: rotary needs a multiple of {even} features, not {features}")
        if site.query.in_time != site.key.in_time:
            raise ValueError(f"attention: no distance of {site.query.of} and {site.key.of}")

    @override
    def build(self, site: Site) -> nn.Module:
        turns = [self._turn(each, site.head_width) for each in positions(site)]
        return RotaryAttention(site, self.biases, turns)

    def _turn(self, position: Tensor, features: int) -> Turn:
        """The rotation of the features of a head at positions `[time]`."""
        columns = self.grid_columns
        axes = [position]
        if columns is not None:
            axes = [torch.floor(position / columns), position % columns]
        size = features // len(axes)
        speed = self.base ** (-torch.arange(0, size, 2, dtype=torch.float64) / size)
        number = torch.arange(features)
        if self.pairs == "neighbours":
            places = number.reshape(len(axes), -1, 2).transpose(1, 2)
        else:
            places = number.reshape(len(axes), 2, -1)
        return Turn(torch.stack(axes, dim=1)[:, :, None] * speed, places)


class Turn(nn.Module):
    """Rotates pairs of features, each at its own speed.

    Args:
        angles: `[time, axes, pairs]`, float64.
        places: Numbers of the two features of each pair, `[axes, 2, pairs]`.
    """

    def __init__(self, angles: Tensor, places: Tensor) -> None:
        super().__init__()
        shape = len(angles), places.numel()
        cosine, sine = torch.empty(shape), torch.empty(shape)
        sides = torch.tensor([[-1.0], [1.0]])
        cosine[:, places] = angles.cos()[:, :, None].to(cosine.dtype).expand(-1, -1, 2, -1)
        sine[:, places] = (angles.sin()[:, :, None] * sides).to(sine.dtype)
        partner = torch.empty(places.numel(), dtype=torch.int64)
        partner[places] = places.flip(1)
        # They follow from the settings and the place, so they are not part of a checkpoint.
        self.cosine: Tensor = nn.Buffer(cosine, persistent=False)
        self.sine: Tensor = nn.Buffer(sine, persistent=False)
        self.partner = nn.Buffer(partner, persistent=False)

    def forward(self, features: Tensor) -> Tensor:
        """Rotate `[…, time, features]`."""
        others = features.index_select(-1, self.partner)
        return features * self.cosine + others * self.sine


class RotaryAttention(MultiHeadAttention):
    """Scaled dot-product attention of rotated queries and keys; values are not rotated.

    The share of the key's bias in a score depends on the distance, so a softmax does not cancel it.

    Args:
        site: Place of the attention.
        biases: Whether the projections to queries, keys and values have biases.
        turns: Rotations of queries and of keys.
    """

    def __init__(self, site: Site, biases: tuple[bool, bool, bool], turns: Sequence[Turn]) -> None:
        super().__init__(site, biases)
        self.turn_query, self.turn_key = turns

    @override
    def mix(self, query: Tensor, key: Tensor, value: Tensor, call: Call) -> Attended:
        turned = self.turn_query(query), self.turn_key(key)
        return super().mix(*turned, value, call)
