"""Synthesizers against section 3.1 of arXiv:2005.00743, in numpy."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

from foretell.models.attention.mechanism import MECHANISMS, Site
from tests.models.attention.places import D_MODEL, HEADS, PLACES

Array = NDArray[np.float64]
EVERYWHERE = pytest.mark.parametrize("place", ["encoder", "decoder", "cross", "group"])


def softmax(scores: Array, causal: bool) -> Array:
    if causal:
        later = np.arange(scores.shape[-1]) > np.arange(scores.shape[-2])[:, None]
        scores = np.where(later, -np.inf, scores)
    exponentials = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return exponentials / exponentials.sum(axis=-1, keepdims=True)


def heads(features: Array, count: int) -> Array:
    return np.stack(np.split(features, count, axis=-1), axis=1)


def numbers(module: nn.Module) -> dict[str, Array]:
    return {name: part.numpy() for name, part in module.state_dict().items()}


def compare(module: nn.Module, site: Site, scores: Array, tokens: Array, source: Array) -> None:
    """The whole layer where its scores are known, `[batch, heads, query, key]`."""
    own = numbers(module)
    weights = softmax(scores, site.causal)
    value = heads(source @ own["value.weight"].T + own["value.bias"], site.heads)
    mixed = np.concatenate(list((weights @ value).swapaxes(0, 1)), axis=-1)
    expected = mixed @ own["out.weight"].T + own["out.bias"]
    found = module(torch.from_numpy(tokens), torch.from_numpy(source), explain=True)
    np.testing.assert_allclose(found.evidence.weights.detach(), weights, atol=1e-12)
    np.testing.assert_allclose(found.output.detach(), expected, rtol=1e-10, atol=1e-10)


def build(place: str, **fields: object) -> tuple[nn.Module, Array, Array]:
    site = PLACES[place]
    torch.manual_seed(0)
    module = MECHANISMS.read(fields).build(site).double().eval()
    random = np.random.default_rng(1)
    tokens = random.normal(size=(3, site.query.length, D_MODEL))
    return module, tokens, random.normal(size=(3, site.key.length, D_MODEL))


@EVERYWHERE
@pytest.mark.parametrize("rank", [None, 3])
def test_scores_are_a_table(place: str, rank: int | None) -> None:
    module, *inputs = build(place, mechanism="synthesizer-random", rank=rank)
    own, site = numbers(module), PLACES[place]
    table = own["left"] if rank is None else np.einsum("hqr,hrk->hqk", own["left"], own["right"])
    assert table.shape == (site.heads, site.query.length, site.key.length)
    compare(module, site, np.stack([table] * 3), *inputs)


@EVERYWHERE
@pytest.mark.parametrize("factorised", [False, True])
def test_scores_are_of_each_token(place: str, factorised: bool) -> None:
    module, tokens, source = build(place, mechanism="synthesizer-dense", factorised=factorised)
    own, site = numbers(module), PLACES[place]
    hidden = np.maximum(tokens @ own["hidden.weight"].T + own["hidden.bias"], 0)
    scores = heads(hidden, site.heads) @ own["net"] + own["bias"]
    if factorised:
        # 24 keys: 5 * 5 products, of which the last is of no key; 14: 4 * 4.
        first = {24: 5, 14: 4}[site.key.length]
        outer = [np.kron(row[:first], row[first:]) for row in scores.reshape(-1, scores.shape[-1])]
        scores = np.stack(outer)[:, : site.key.length].reshape(*scores.shape[:3], -1)
    compare(module, site, scores, tokens, source)


def test_a_net_has_the_size_that_is_published() -> None:
    """Table 1: d^2 + d N, and factorised d^2 + d (k1 + k2), besides biases."""
    for factorised, scores in ((False, 24), (True, 5 + 5)):
        module, *_ = build("encoder", mechanism="synthesizer-dense", factorised=factorised)
        count = module.hidden.weight.numel() + module.net.numel()
        assert count == D_MODEL**2 + D_MODEL * scores


@pytest.mark.parametrize("rank", [None, 2, 50])
def test_scores_begin_alike_at_any_rank(rank: int | None) -> None:
    torch.manual_seed(0)
    site = PLACES["encoder"]._replace(heads=HEADS * 20, d_model=HEADS * 20)
    module = MECHANISMS.read({"mechanism": "synthesizer-random", "rank": rank}).build(site)
    assert module.score(torch.zeros(1)).std().item() == pytest.approx(1, abs=0.1)
