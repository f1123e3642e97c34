import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from foretell.bundle.attention import Axis
from foretell.models.attention.mechanism import MECHANISMS, Site
from tests.models.attention.places import PLACES
from tests.models.attention.published import published

pytestmark = pytest.mark.usefixtures("float64")

LENGTH, WIDTH, HEADS = 11, 16, 2
SIZE = WIDTH // HEADS
LINE = Axis(length=LENGTH, start=-LENGTH)
SETTINGS: list[dict[str, Any]] = [
    {},
    {"pairs": "neighbours", "base": 50},
    {"grid_columns": 4, "base": 100},
    {"grid_columns": 4, "pairs": "neighbours", "key_bias": False},
]


def build(site: Site, **settings: Any) -> nn.Module:
    torch.manual_seed(0)
    layer = MECHANISMS.read({"mechanism": "rotary", **settings}).build(site).eval()
    # Larger scores than those of who begins.
    layer.query.weight.data *= 3
    return layer


def line(*, causal: bool = False, start: int = -LENGTH, **axis: Any) -> Site:
    axis = Axis(length=LENGTH, start=start, **axis)
    return Site(WIDTH, HEADS, axis, axis, causal=causal)


def turned(features: np.ndarray, position: float, base: float, pairs: str) -> np.ndarray:
    """Equation 34 for neighbours: pairs (x1, x2) become (x1 cos - x2 sin, x2 cos + x1 sin)."""
    size = len(features)
    result = np.empty(size)
    for i in range(size // 2):
        one, two = (2 * i, 2 * i + 1) if pairs == "neighbours" else (i, i + size // 2)
        angle = position * base ** (-2 * i / size)
        result[one] = features[one] * math.cos(angle) - features[two] * math.sin(angle)
        result[two] = features[two] * math.cos(angle) + features[one] * math.sin(angle)
    return result


def placed(features: np.ndarray, position: float, **settings: Any) -> np.ndarray:
    """A head, turned by its position on a line or a grid."""
    base, pairs = settings.get("base", 10000), settings.get("pairs", "halves")
    columns = settings.get("grid_columns")
    if columns is None:
        return turned(features, position, base, pairs)
    row, column = divmod(position, columns)
    halves = np.split(features, 2)
    each = [turned(half, at, base, pairs) for half, at in zip(halves, (row, column), strict=True)]
    return np.concatenate(each)


def dense(layer: nn.Module, tokens, source, query_at, key_at, *, causal=False, **settings):
    """Output and map, one query, key and head at a time."""

    def linear(name: str, given: np.ndarray) -> np.ndarray:
        part = getattr(layer, name)
        bias = 0 if part.bias is None else part.bias.detach().numpy()
        return given @ part.weight.detach().numpy().T + bias

    query, key, value = linear("query", tokens), linear("key", source), linear("value", source)
    weights = np.zeros((HEADS, len(tokens), len(source)))
    mixed = np.zeros((len(tokens), WIDTH))
    for head in range(HEADS):
        part = slice(head * SIZE, (head + 1) * SIZE)
        for i, m in enumerate(query_at):
            at = placed(query[i, part], m, **settings)
            scores = np.array(
                [at @ placed(key[j, part], n, **settings) for j, n in enumerate(key_at)]
            )
            scores = scores / math.sqrt(SIZE)
            if causal:
                scores[i + 1 :] = -np.inf
            found = np.exp(scores - scores.max())
            weights[head, i] = found / found.sum()
            mixed[i, part] = weights[head, i] @ value[:, part]
    return linear("out", mixed), weights


def agrees(layer, tokens, source, *arguments, **settings) -> None:
    output, weights = dense(layer, tokens[0].numpy(), source[0].numpy(), *arguments, **settings)
    found = layer(tokens, source, explain=True)
    np.testing.assert_allclose(found.output[0].detach(), output, rtol=0, atol=1e-10)
    np.testing.assert_allclose(found.evidence.weights[0].detach(), weights, rtol=0, atol=1e-10)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("settings", SETTINGS)
def test_it_is_the_formula(settings, causal) -> None:
    layer = build(line(causal=causal), **settings)
    tokens = torch.randn(1, LENGTH, WIDTH)
    agrees(layer, tokens, tokens, *[range(-LENGTH, 0)] * 2, causal=causal, **settings)


@pytest.mark.parametrize("settings", SETTINGS)
def test_a_decoder_and_its_source_have_one_clock(settings) -> None:
    decoder = Axis(length=6, start=-2)
    layer = build(Site(WIDTH, HEADS, decoder, LINE), **settings)
    tokens, source = torch.randn(1, 6, WIDTH), torch.randn(1, LENGTH, WIDTH)
    agrees(layer, tokens, source, range(-2, 4), range(-LENGTH, 0), **settings)


def test_patches_are_counted_in_strides() -> None:
    site = line(of="patches", start=-48, stride=4, width=8)
    tokens = torch.randn(1, LENGTH, WIDTH)
    agrees(build(site), tokens, tokens, *[range(-12, -12 + LENGTH)] * 2)


def test_channels_are_counted() -> None:
    channels = Axis(of="channels", length=LENGTH)
    layer = build(Site(WIDTH, HEADS, channels, channels))
    tokens = torch.randn(1, LENGTH, WIDTH)
    agrees(layer, tokens, tokens, *[range(LENGTH)] * 2)


@pytest.mark.parametrize("pairs", ["halves", "neighbours"])
def test_only_distances_count(pairs) -> None:
    tokens = torch.randn(2, LENGTH, WIDTH)
    here, later = (
        build(line(start=start), pairs=pairs)(tokens, tokens).output for start in (-LENGTH, 500)
    )
    torch.testing.assert_close(here, later, rtol=0, atol=1e-11)
    faster = build(line(), pairs=pairs, base=100)(tokens, tokens).output
    assert not torch.allclose(here, faster, atol=1e-3)


def test_on_a_grid_only_distances_in_rows_and_columns_count() -> None:
    tokens = torch.randn(1, LENGTH, WIDTH)
    here, rows_later, one_later = (
        build(line(start=start), grid_columns=4)(tokens, tokens).output for start in (0, 400, 401)
    )
    torch.testing.assert_close(here, rows_later, rtol=0, atol=1e-11)
    # What was the end of a row is the beginning of the next.
    assert not torch.allclose(here, one_later, atol=1e-3)


def test_equal_tokens_at_equal_distances_have_equal_scores() -> None:
    layer = build(line())
    tokens = torch.randn(1, 1, WIDTH).expand(1, LENGTH, WIDTH)
    weights = layer(tokens, tokens, explain=True).evidence.weights[0].log()
    ratios = weights.diff(dim=-1)
    assert weights.std() > 0.01
    for offset in range(-3, 4):
        diagonal = ratios.diagonal(offset, dim1=-2, dim2=-1)
        torch.testing.assert_close(diagonal, diagonal[:, :1].expand_as(diagonal))


def test_as_the_package_does() -> None:
    """rotary-embedding-torch turns neighbours."""
    package = published("rotary_embedding_torch")
    theirs = package.RotaryEmbedding(SIZE, custom_freqs=50.0 ** (-torch.arange(0, SIZE, 2) / SIZE))
    layer = build(line(start=0), pairs="neighbours", base=50)
    heads = torch.randn(2, HEADS, LENGTH, SIZE)
    expected = theirs.rotate_queries_or_keys(heads)
    torch.testing.assert_close(layer.turn_query(heads), expected, rtol=0, atol=1e-6)
    assert not torch.allclose(heads, expected, atol=0.1)


def test_the_key_has_a_bias_that_counts() -> None:
    with_it, without = build(line()), build(line(), key_bias=False)
    tokens = torch.randn(1, LENGTH, WIDTH)
    state = with_it.state_dict()
    without.load_state_dict({name: one for name, one in state.items() if name != "key.bias"})
    assert not torch.allclose(with_it(tokens, tokens).output, without(tokens, tokens).output)


@pytest.mark.parametrize(
    ("place", "width", "settings", "message"),
    [
        ("encoder", 6, {}, "heads: rotary needs a multiple of 2 features, not 3"),
        ("encoder", 12, {"grid_columns": 4}, "heads: rotary needs a multiple of 4 features, not 6"),
    ],
)
def test_features_that_make_no_pairs_are_refused(place, width, settings, message) -> None:
    mechanism = MECHANISMS.read({"mechanism": "rotary", **settings})
    with pytest.raises(ValueError, match=message):
        mechanism.check(PLACES[place]._replace(width=width))


def test_what_is_at_no_distance_is_refused() -> None:
    site = PLACES["encoder"]._replace(key=Axis(of="channels", length=3))
    with pytest.raises(ValueError, match="attention: steps are at no distance from channels"):
        MECHANISMS.read("rotary").check(site)
