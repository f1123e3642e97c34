from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from foretell.models.attention.mechanism import MECHANISMS
from foretell.models.attention.zoo.linformer import LinformerAttention
from tests.models.attention.by_hand import equal, merged, numbers, projected, softmax
from tests.models.attention.places import PLACES, made
from tests.models.attention.published import published


def make(place: str, landmarks: int = 5) -> LinformerAttention:
    module = made({"mechanism": "linformer", "landmarks": landmarks}, PLACES[place])
    assert isinstance(module, LinformerAttention)
    return module


def inputs(place: str) -> tuple[Tensor, Tensor]:
    site = PLACES[place]
    torch.manual_seed(1)
    sizes = [(3, axis.length, site.d_model) for axis in (site.query, site.key)]
    tokens, source = (2 * torch.randn(size, dtype=torch.float64) for size in sizes)
    return tokens, tokens if site.query == site.key else source


@pytest.mark.parametrize("place", ["encoder", "cross"])
def test_it_is_equation_7(place: str) -> None:
    """softmax(Q (E K)ᵀ / √d) (F V)."""
    module, (tokens, source) = make(place), inputs(place)
    query, key, value = projected(module, tokens, source)
    e, f = numbers(module.of_keys), numbers(module.of_values)
    weights = softmax(query @ (e @ key).swapaxes(-1, -2) / np.sqrt(query.shape[-1]))
    found = module(tokens, source, explain=True)
    equal(found.output, merged(module, weights @ (f @ value)))
    equal(found.evidence.weights, weights)


def test_against_linformer() -> None:
    module, (tokens, _) = make("encoder"), inputs("encoder")
    theirs = published("linformer").LinformerSelfAttention(8, 24, k=5, heads=2).double()
    for ours, other in ((module.query, theirs.to_q), (module.key, theirs.to_k)):
        ours.weight.data, ours.bias.data = other.weight.data, 0 * ours.bias
    module.value.weight.data, module.value.bias.data = theirs.to_v.weight.data, 0 * module.out.bias
    module.out = theirs.to_out
    module.of_keys.data, module.of_values.data = theirs.proj_k.data.T, theirs.proj_v.data.T
    equal(module(tokens, tokens).output, theirs(tokens).detach().numpy())


@pytest.mark.parametrize(("landmarks", "count"), [(5, 5), (24, 24), (100, 24)])
def test_there_are_no_more_landmarks_than_keys(landmarks: int, count: int) -> None:
    config = MECHANISMS.read({"mechanism": "linformer", "landmarks": landmarks})
    (stage,) = config.describe("a", PLACES["cross"])
    assert (stage.query.length, stage.key.of, stage.key.length) == (14, "landmarks", count)
    assert make("cross", landmarks).of_values.shape == (count, 24)
