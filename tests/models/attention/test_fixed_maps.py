"""Layers whose map is not by products of queries and keys."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from foretell.models.attention.mechanism import MECHANISMS, Site
from foretell.models.attention.zoo.token_mixing import FourierMixing, factors
from tests.models.attention.by_hand import (
    Array,
    assert_gives,
    heads_of,
    linear,
    merged,
    numbers,
    softmax,
)
from tests.models.attention.places import D_MODEL, HEADS, LENGTH, PLACES, made

EVERYWHERE = pytest.mark.parametrize("place", ["encoder", "decoder", "cross", "group"])


def synthesizer(place: str, **fields: object) -> tuple[nn.Module, Tensor, Tensor]:
    """A layer by section 3.1 of arXiv:2005.00743, and what it reads."""
    site = PLACES[place]
    tokens, source = (
        torch.randn(3, axis.length, D_MODEL, dtype=torch.float64) for axis in (site.query, site.key)
    )
    return made(fields, site), tokens, source


def compare(module: nn.Module, site: Site, scores: Array, tokens: Tensor, source: Tensor) -> None:
    """The whole layer where its scores are known, `[batch, heads, query, key]`."""
    weights = softmax(scores, causal=site.causal)
    value = heads_of(module.value, numbers(source), site.heads)
    assert_gives(module, tokens, source, merged(module, weights @ value), weights)


@EVERYWHERE
@pytest.mark.parametrize("rank", [None, 3])
def test_scores_are_a_table(place: str, rank: int | None) -> None:
    module, *inputs = synthesizer(place, mechanism="synthesizer-random", rank=rank)
    table, site = numbers(module.left), PLACES[place]
    if rank is not None:
        table = np.einsum("hqr,hrk->hqk", table, numbers(module.right))
    assert table.shape == (site.heads, site.query.length, site.key.length)
    compare(module, site, np.stack([table] * 3), *inputs)


@EVERYWHERE
@pytest.mark.parametrize("factorised", [False, True])
def test_scores_are_of_each_token(place: str, factorised: bool) -> None:
    module, tokens, source = synthesizer(
        place, mechanism="synthesizer-dense", factorised=factorised
    )
    site = PLACES[place]
    hidden = np.maximum(linear(module.hidden, numbers(tokens)), 0)
    hidden = hidden.reshape(*hidden.shape[:2], site.heads, -1).swapaxes(1, 2)
    scores = hidden @ numbers(module.net) + numbers(module.bias)
    # Table 1: d^2 + d N, and factorised d^2 + d (k1 + k2), besides biases.
    each = site.key.length
    if factorised:
        # 24 keys: 5 * 5 products, of which the last is of no key; 14: 4 * 4.
        first = {24: 5, 14: 4}[each]
        outer = [np.kron(row[:first], row[first:]) for row in scores.reshape(-1, scores.shape[-1])]
        scores = np.stack(outer)[:, :each].reshape(*scores.shape[:3], -1)
        each = 2 * first
    assert module.net.shape == (site.heads, hidden.shape[-1], each)
    compare(module, site, scores, tokens, source)


@pytest.mark.parametrize("rank", [None, 2, 50])
def test_scores_begin_alike_at_any_rank(rank: int | None) -> None:
    torch.manual_seed(0)
    site = PLACES["encoder"]._replace(heads=HEADS * 20, d_model=HEADS * 20)
    module = MECHANISMS.read({"mechanism": "synthesizer-random", "rank": rank}).build(site)
    assert module.score(torch.zeros(1)).std().item() == pytest.approx(1, abs=0.1)


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("features", [1, 6, 7])
@pytest.mark.parametrize("length", [1, 2, 12, 24, 42, 97, 105])
def test_fourier_mixing_is_the_real_part_of_the_transform(length: int, features: int) -> None:
    tokens = np.random.default_rng(0).normal(size=(3, length, features))
    given = torch.from_numpy(tokens)
    # Equation 3 of arXiv:2105.03824.
    found = FourierMixing(features, length)(given, given, explain=True)
    expected = np.fft.fft2(tokens, axes=(1, 2)).real
    np.testing.assert_allclose(found.output, expected, rtol=1e-10, atol=1e-11)
    assert found.evidence is None


def test_rounding_does_not_grow_with_the_length() -> None:
    tokens = np.random.default_rng(0).normal(3, 1, size=(1, 720, 8)).astype(np.float32)
    given = torch.from_numpy(tokens)
    expected = np.fft.fft2(tokens.astype(float), axes=(1, 2)).real
    found = FourierMixing(8, 720)(given, given).output
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6 * np.abs(expected).max())


def test_long_transforms_are_of_short_ones() -> None:
    assert [factors(length) for length in (97, 720, 4096)] == [(97, 1), (40, 18), (128, 32)]


@pytest.mark.parametrize("hidden", [None, 5])
def test_network_along_the_tokens(hidden: int | None) -> None:
    """Equation 1 of arXiv:2105.01601 for the feature i: `W2 gelu(W1 X[:, i])`."""
    torch.manual_seed(0)
    module = MECHANISMS.read({"mechanism": "mlp", "hidden": hidden}).build(PLACES["encoder"])
    own = {name: part.numpy() for name, part in module.double().state_dict().items()}
    expand, first, contract, second = own.values()
    assert expand.shape == (hidden or 2 * LENGTH, LENGTH)
    tokens = np.random.default_rng(0).normal(size=(3, LENGTH, D_MODEL))
    expected = np.empty_like(tokens)
    for window, i in np.ndindex(3, D_MODEL):
        wide = expand @ tokens[window, :, i] + first
        gelu = [each / 2 * (1 + math.erf(each / math.sqrt(2))) for each in wide]
        expected[window, :, i] = contract @ gelu + second
    given = torch.from_numpy(tokens)
    found = module(given, given, explain=True)
    np.testing.assert_allclose(found.output.detach(), expected, rtol=1e-10, atol=1e-12)
    assert found.evidence is None
