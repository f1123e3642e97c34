"""Paths that are drawn step by step at fixed levels, so that a graph can contain them.

All steps and channels have the same levels: the middles of equal shares, one per path. A fixed
shuffle assigns them to paths: a Latin hypercube sample (McKay, Beckman and Conover, 1979).
"""

from __future__ import annotations

from random import Random
from statistics import NormalDist
from typing import Literal, cast

import numpy as np
import torch
from numpy.polynomial.chebyshev import cheb2poly
from torch import Tensor, nn
from typing_extensions import override

from foretell.bundle.distribution import Floats, student_t_series
from foretell.models.attention.evidence import Dense
from foretell.models.heads import Quantiles
from foretell.models.layers.transformer import Cache, Decoded, DecoderLayer

Drawn = Literal["normal", "student-t"]
# Terms of the series of Student's t: the remainder is below 1e-9 for levels from 0.0005.
_TERMS = 13


def levels(count: int) -> tuple[float, ...]:
    """The levels of `count` paths, in ascending order."""
    return tuple((place + 0.5) / count for place in range(count))


def places(draws: int, count: int) -> list[list[int]]:
    """The place among the levels that each path has at each draw, `[draws][count]`."""
    # Python promises the same numbers in later versions.
    draw = Random(0).random  # noqa: S311 - no secret
    keys = ([draw() for _ in range(count)] for _ in range(draws))
    return [sorted(range(count), key=key.__getitem__) for key in keys]


class Draw(nn.Module):
    """Draws the next values of paths from their distributions.

    Args:
        family: Family of the distributions.
        steps: Steps of a path.
        channels: Number of channels, which are drawn independently.
        count: Number of paths.
    """

    def __init__(self, family: Drawn, steps: int, channels: int, count: int) -> None:
        super().__init__()
        self.family = family
        table = torch.tensor(_constants(family, levels(count)), dtype=torch.get_default_dtype())
        orders = torch.tensor(places(steps * channels, count)).reshape(steps, channels, count)
        # `[steps, paths, channels, terms]`.
        constants = table[orders].transpose(1, 2).contiguous()
        self._constants = nn.Buffer(constants, persistent=False)
        self._powers = nn.Buffer(torch.arange(float(_TERMS)), persistent=False)

    def forward(self, parameters: Tensor, step: int) -> Tensor:
        """`[batch, paths, channels, parameters]` to `[batch, paths, channels]`."""
        constants = self._constants[step]
        loc, scale = parameters[..., -2], parameters[..., -1]
        if self.family == "normal":
            return loc + scale * constants[..., 0]
        # Argument of the series for the degrees of freedom.
        place = 4 / parameters[..., :1] - 1
        return loc + scale * (place**self._powers * constants).sum(dim=-1)


class Paths(Quantiles):
    """Distributions given by paths, in ascending order at each step.

    Args:
        count: Number of paths.
    """

    def __init__(self, count: int) -> None:
        super().__init__(levels(count))

    @override
    def mean(self, parameters: Tensor) -> Tensor:
        return parameters.mean(dim=-1)


class PathsLayer(DecoderLayer):
    """A decoder layer for one step of some paths at a time, all of which read one memory.

    Its maps are sums over the paths.
    """

    @override
    def extend(self, tokens: Tensor, cache: Cache) -> tuple[Decoded, Cache]:
        """Decode a step `[batch, paths, d_model]` that follows those of the cache."""
        # Each path reads its own past only.
        own, cache = self.attend_itself(tokens[:, :, None], cache)
        decoded = self.read_memory(tokens, own._replace(output=own.output[:, :, 0]), cache)
        # Mechanisms with a cache show maps.
        itself, cross = (cast("Dense", one).weights for one in (decoded.own, decoded.cross))
        itself, cross = itself.sum(dim=1), cross.sum(dim=2, keepdim=True)
        return decoded._replace(own=Dense(itself), cross=Dense(cross)), cache


def ascending(paths: Tensor) -> Tensor:
    """Sort paths `[batch, time, paths, channels]` at each step."""
    return paths.sort(dim=2).values


def _constants(family: Drawn, wanted: tuple[float, ...]) -> Floats:
    """Constants of quantiles, `[levels, terms]`: themselves, or factors of powers."""
    if family == "normal":
        return np.array([[NormalDist().inv_cdf(level)] for level in wanted])
    # The terms fall so fast that nothing is lost in the sums of powers.
    return np.stack([cheb2poly(series) for series in student_t_series(*wanted)[:_TERMS].T])
