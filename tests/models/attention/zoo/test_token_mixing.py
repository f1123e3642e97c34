"""Fourier mixing against numpy's transform, and the net along the tokens by its formula."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from foretell.models.attention.mechanism import MECHANISMS
from foretell.models.attention.zoo.token_mixing import FourierMixing, factors
from tests.models.attention.places import D_MODEL, LENGTH, PLACES

FOURIER = MECHANISMS.read({"mechanism": "fourier"})


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("features", [1, 6, 7])
@pytest.mark.parametrize("length", [1, 2, 12, 24, 42, 97, 105])
def test_it_is_the_real_part_of_the_transform(length: int, features: int) -> None:
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


def test_nothing_is_learned_or_stored() -> None:
    assert FOURIER.build(PLACES["encoder"]).state_dict() == {}


def test_long_transforms_are_of_short_ones() -> None:
    assert [factors(length) for length in (97, 720, 4096)] == [(97, 1), (40, 18), (128, 32)]


@pytest.mark.parametrize("hidden", [None, 5])
def test_a_net_along_the_tokens(hidden: int | None) -> None:
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


@pytest.mark.parametrize("name", ["fourier", "mlp"])
@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("group", "mixes whole tokens, not those of heads"),
        ("cross", "is among the tokens themselves"),
    ],
)
def test_where_it_cannot_be(name: str, place: str, message: str) -> None:
    with pytest.raises(ValueError, match=f"attention: {name} {message}"):
        MECHANISMS.read({"mechanism": name}).check(PLACES[place])


def test_heads_of_all_features_may_have_it() -> None:
    FOURIER.check(PLACES["encoder"]._replace(width=D_MODEL))
