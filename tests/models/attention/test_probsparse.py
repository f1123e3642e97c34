"""ProbSparse attention against the formulas of arXiv:2012.07436, in numpy, all keys sampled."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn

from foretell.models.attention.mechanism import Site
from tests.models.attention.by_hand import Array, assert_map, equal, softmax
from tests.models.attention.places import D_MODEL, PLACES, made, site_of


def build(site: Site, factor: float = 5) -> nn.Module:
    return made({"mechanism": "probsparse", "factor": factor}, site)


@pytest.mark.parametrize("place", ["encoder", "cross", "group"])
@pytest.mark.parametrize("factor", [0.5, 1.5, 5, 100])
def test_probsparse_equals_its_formula(place: str, factor: float) -> None:
    site = PLACES[place]
    module = build(site, factor)
    random = np.random.default_rng(1)
    tokens, source = (
        torch.from_numpy(3 * random.normal(size=(3, axis.length, D_MODEL)))
        for axis in (site.query, site.key)
    )
    count = min(max(int(factor * math.log(site.query.length)), 1), site.query.length)
    peaks, chosen = [], []

    def weights(query: Array, key: Array, _: int) -> Array:
        scores = query @ key.T / math.sqrt(query.shape[-1])
        # Equation 4, and the definition below equation 3.
        peaks.append(scores.max(axis=1) - scores.mean(axis=1))
        first = np.zeros(len(scores), bool)
        first[np.argsort(-peaks[-1])[:count]] = True
        chosen.append(first)
        return np.where(first[:, None], softmax(scores), 1 / site.key.length)

    maps = assert_map(module, tokens, source, weights)
    evidence = module(tokens, source, explain=True).evidence
    equal(evidence.scores, np.reshape(peaks, maps.shape[:3]))
    assert evidence.chosen.shape == (3, site.heads, count)
    known = np.reshape(chosen, maps.shape[:3])
    assert np.take_along_axis(known, evidence.chosen.numpy(), axis=-1).all()


def test_single_token_attends_to_itself() -> None:
    module, token = build(site_of(1)), torch.randn(1, 1, D_MODEL, dtype=torch.float64)
    assert module(token, token, explain=True).evidence.weights.tolist() == [[[[1.0]], [[1.0]]]]


def test_the_published_causal_choice_would_leak() -> None:
    """The published choice leaks: another future changes which past queries attend."""
    module = build(PLACES["encoder"], 1)
    tokens = torch.randn(1, 24, D_MODEL, dtype=torch.float64)
    # Keys and scores of the past are the same, but other queries have the largest scores.
    source, later = torch.randn_like(tokens), tokens.clone()
    later[:, 20:] *= 10
    before, after = (module(each, source, explain=True).evidence for each in (tokens, later))
    assert torch.equal(before.scores[..., :20], after.scores[..., :20])
    assert not torch.equal(before.weights[..., :20, :], after.weights[..., :20, :])
