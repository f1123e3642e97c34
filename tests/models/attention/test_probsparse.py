"""ProbSparse attention against the formulas of arXiv:2012.07436, in numpy, all keys sampled."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn

from foretell.models.attention.mechanism import MECHANISMS, Site
from tests.models.attention.by_hand import merged, projected
from tests.models.attention.places import D_MODEL, PLACES


def build(site: Site, factor: float = 5) -> nn.Module:
    torch.manual_seed(0)
    config = MECHANISMS.read({"mechanism": "probsparse", "factor": factor})
    module: nn.Module = config.build(site).double().eval()
    return module


def kept(factor: float, length: int) -> int:
    config = MECHANISMS.read({"mechanism": "probsparse", "factor": factor})
    axis = PLACES["encoder"].query.model_copy(update={"length": length})
    (stage,) = config.describe("s", PLACES["encoder"]._replace(query=axis, key=axis))
    return int({output.name: output.shape for output in stage.outputs}["s.chosen"][-1] or 0)


@pytest.mark.parametrize("place", ["encoder", "cross", "group"])
@pytest.mark.parametrize("factor", [0.5, 1.5, 5, 100])
def test_it_is_the_formula(place: str, factor: float) -> None:
    site = PLACES[place]
    module = build(site, factor)
    random = np.random.default_rng(1)
    tokens = torch.from_numpy(3 * random.normal(size=(3, site.query.length, D_MODEL)))
    source = torch.from_numpy(3 * random.normal(size=(3, site.key.length, D_MODEL)))
    query, key, value = projected(module, tokens, source)
    count = min(max(int(factor * math.log(site.query.length)), 1), site.query.length)
    weights = np.empty((3, site.heads, site.query.length, site.key.length))
    peaks = np.empty(weights.shape[:3])
    chosen = np.zeros(peaks.shape, bool)
    for at in np.ndindex(peaks.shape[:2]):
        scores = query[at] @ key[at].T / math.sqrt(query.shape[-1])
        # Equation 4, and the definition below equation 3.
        peaks[at] = scores.max(axis=1) - scores.mean(axis=1)
        chosen[at][sorted(range(len(scores)), key=lambda i, p=peaks[at]: -p[i])[:count]] = True
        attending = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
        weights[at] = np.where(chosen[at][:, None], attending, 1 / site.key.length)
    expected = merged(module, weights @ value)

    found = module(tokens, source, explain=True)
    np.testing.assert_allclose(found.output.detach(), expected, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(found.evidence.weights.detach(), weights, atol=1e-12)
    np.testing.assert_allclose(found.evidence.scores, peaks, atol=1e-10)
    assert found.evidence.chosen.shape == (3, site.heads, count)
    assert np.take_along_axis(chosen, found.evidence.chosen.numpy(), axis=-1).all()


def test_how_many_attend() -> None:
    assert [kept(5, length) for length in (5, 24, 96, 720)] == [5, 15, 22, 32]
    assert [kept(0.1, length) for length in (1, 5, 720)] == [1, 1, 1]


def test_a_token_alone_reads_itself() -> None:
    axis = PLACES["encoder"].query.model_copy(update={"length": 1})
    module = build(PLACES["encoder"]._replace(query=axis, key=axis))
    token = torch.randn(1, 1, D_MODEL, dtype=torch.float64)
    assert module(token, token, explain=True).evidence.weights.tolist() == [[[[1.0]], [[1.0]]]]


def test_the_published_causal_choice_would_leak() -> None:
    """Why there is none: of another future another past attends."""
    module = build(PLACES["encoder"], 1)
    tokens = torch.randn(1, 24, D_MODEL, dtype=torch.float64)
    # Keys stay, and with them the scores of the past, but not who is among the first.
    source, later = torch.randn_like(tokens), tokens.clone()
    later[:, 20:] *= 10
    before, after = (module(each, source, explain=True).evidence for each in (tokens, later))
    assert torch.equal(before.scores[..., :20], after.scores[..., :20])
    assert not torch.equal(before.weights[..., :20, :], after.weights[..., :20, :])
