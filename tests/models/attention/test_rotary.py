import math
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from foretell.bundle.attention import Axis
from foretell.models.attention.mechanism import MECHANISMS, Site
from tests.models.attention.by_hand import Array, assert_map, softmax

pytestmark = pytest.mark.usefixtures("float64")

LENGTH, WIDTH, HEADS = 11, 16, 2
LINE = Axis(length=LENGTH, start=-LENGTH)
DECODER = Axis(length=6, start=-2)
PATCHES = Axis(of="patches", length=LENGTH, start=-48, stride=4, width=8)
CHANNELS = Axis(of="channels", length=LENGTH)
NEIGHBOURS = {"pairs": "neighbours", "base": 50}
ON_A_GRID = [
    {"grid_columns": 4, "base": 100},
    {"grid_columns": 4, "pairs": "neighbours", "key_bias": False},
]


def build(query: Axis, key: Axis, causal: bool = False, **settings: Any) -> nn.Module:
    torch.manual_seed(0)
    site = Site(WIDTH, HEADS, query, key, causal=causal)
    layer = MECHANISMS.read({"mechanism": "rotary", **settings}).build(site).eval()
    # Larger scores than those of a layer before its training.
    layer.query.weight.data *= 3
    return layer


def turned(features: Array, position: float, base: float, pairs: str) -> Array:
    """Equation 34 for neighbours: pairs (x1, x2) become (x1 cos - x2 sin, x2 cos + x1 sin)."""
    size = len(features)
    result = np.empty(size)
    for i in range(size // 2):
        one, two = (2 * i, 2 * i + 1) if pairs == "neighbours" else (i, i + size // 2)
        angle = position * base ** (-2 * i / size)
        result[one] = features[one] * math.cos(angle) - features[two] * math.sin(angle)
        result[two] = features[two] * math.cos(angle) + features[one] * math.sin(angle)
    return result


def placed(features: Array, position: float, **settings: Any) -> Array:
    """A head, turned by its position on a line or a grid."""
    base, pairs = settings.get("base", 10000), settings.get("pairs", "halves")
    columns = settings.get("grid_columns")
    if columns is None:
        return turned(features, position, base, pairs)
    row, column = divmod(position, columns)
    halves = np.split(features, 2)
    each = [turned(half, at, base, pairs) for half, at in zip(halves, (row, column), strict=True)]
    return np.concatenate(each)


@pytest.mark.parametrize("settings", [{}, NEIGHBOURS, *ON_A_GRID])
@pytest.mark.parametrize(
    ("query", "key", "causal", "query_at", "key_at"),
    [
        (LINE, LINE, False, range(-LENGTH, 0), range(-LENGTH, 0)),
        (LINE, LINE, True, range(-LENGTH, 0), range(-LENGTH, 0)),
        # Positions of a decoder and of its source have the same origin.
        (DECODER, LINE, False, range(-2, 4), range(-LENGTH, 0)),
        # Patches are counted in strides.
        (PATCHES, PATCHES, False, range(-12, -1), range(-12, -1)),
        (CHANNELS, CHANNELS, False, range(LENGTH), range(LENGTH)),
    ],
)
def test_scores_are_of_turned_queries_and_keys(
    settings: dict[str, Any], query: Axis, key: Axis, causal: bool, query_at: range, key_at: range
) -> None:
    layer = build(query, key, causal, **settings)
    tokens, source = torch.randn(1, query.length, WIDTH), torch.randn(1, key.length, WIDTH)

    def weights(queries: Array, keys: Array, _: int) -> Array:
        turn = partial(placed, **settings)
        left = np.array([turn(row, at) for row, at in zip(queries, query_at, strict=True)])
        right = np.array([turn(row, at) for row, at in zip(keys, key_at, strict=True)])
        return softmax(left @ right.T / math.sqrt(WIDTH // HEADS), causal=causal)

    assert_map(layer, tokens, source, weights)


@pytest.mark.parametrize(
    ("settings", "start", "moved", "other"),
    [
        ({}, -LENGTH, 500, {"base": 100}),
        (NEIGHBOURS, -LENGTH, 500, {"base": 100}),
        # A shift of whole rows of the grid; a shift of one step would move tokens to other rows.
        ({"grid_columns": 4}, 0, 400, {"start": 401}),
    ],
)
def test_only_distances_count(
    settings: dict[str, Any], start: int, moved: int, other: dict[str, Any]
) -> None:
    tokens = torch.randn(2, LENGTH, WIDTH)

    def output(start: int, **changes: Any) -> torch.Tensor:
        line = Axis(length=LENGTH, start=start)
        found: torch.Tensor = build(line, line, **settings | changes)(tokens, tokens).output
        return found

    here = output(start)
    torch.testing.assert_close(here, output(moved), rtol=0, atol=1e-11)
    assert not torch.allclose(here, output(**{"start": start, **other}), atol=1e-3)
