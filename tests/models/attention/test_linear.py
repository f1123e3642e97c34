import numpy as np
import pytest
import torch
from torch import Tensor

from foretell.models.attention.linear import LinearAttention
from tests.models.attention.by_hand import Array, dense, quotient


def build(*, causal: bool = False) -> LinearAttention:
    torch.manual_seed(0)
    return LinearAttention(12, 3, causal=causal).double().eval()


def random(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


# One chunk, several, and several of which the last is not full.
@pytest.mark.parametrize("steps", [14, 64, 70, 97])
@pytest.mark.parametrize("causal", [False, True])
def test_it_is_what_the_paper_has(causal: bool, steps: int) -> None:
    layer, tokens = build(causal=causal), 2 * random(2, steps, 12)

    def weights(query: Array, key: Array, _: int) -> Array:
        features = [np.where(x > 0, x + 1, np.exp(x)) for x in (query, key)]
        return quotient(features[0] @ features[1].T, causal=causal)

    expected, maps = dense(layer, tokens, tokens, weights)
    found = layer(tokens, tokens, explain=True)
    np.testing.assert_allclose(found.output.detach(), expected, atol=1e-10)
    np.testing.assert_allclose(found.evidence.weights.detach(), maps, atol=1e-10)
    np.testing.assert_allclose(maps.sum(axis=-1), 1)


def test_a_source_of_another_length() -> None:
    layer, tokens, source = build(), random(2, 5, 12), random(2, 9, 12)

    def weights(query: Array, key: Array, _: int) -> Array:
        features = [np.where(x > 0, x + 1, np.exp(x)) for x in (query, key)]
        return quotient(features[0] @ features[1].T, causal=False)

    expected, _ = dense(layer, tokens, source, weights)
    np.testing.assert_allclose(layer(tokens, source).output.detach(), expected, atol=1e-10)


@pytest.mark.parametrize("changed", [31, 40, 96])
def test_no_later_step_leaks_through_a_chunk(changed: int) -> None:
    layer, tokens = build(causal=True).float(), torch.randn(1, 97, 12)
    later = tokens.clone()
    later[:, changed:] = 1e3 * torch.randn_like(later[:, changed:])
    before, after = (layer(each, each).output for each in (tokens, later))
    assert torch.equal(before[:, :changed], after[:, :changed])
    assert not torch.equal(before[:, changed], after[:, changed])


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("size", [-1e4, 1e4])
def test_large_numbers(size: float, causal: bool) -> None:
    layer = build(causal=causal).float()
    value = torch.randn(1, 3, 70, 4)
    query, key = (size * (1 + torch.rand(1, 3, 70, 4)) for _ in range(2))
    mixed = layer.mix(query, key, value, inherited=None, explain=False).output
    assert mixed.isfinite().all()
    assert (mixed.abs() <= value.abs().max()).all()
    if size < 0:
        # No key is more than another.
        mean = value.mean(dim=-2) if not causal else value[..., 0, :]
        torch.testing.assert_close(mixed[..., -1 if not causal else 0, :], mean)


@pytest.mark.parametrize("causal", [False, True])
def test_the_quotient_has_full_precision(causal: bool) -> None:
    layer = build(causal=causal).float()
    parts = [torch.randn(1, 3, 70, 4).bfloat16() for _ in range(3)]
    expected = layer.mix(*(part.float() for part in parts), inherited=None, explain=False)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = layer.mix(*parts, inherited=None, explain=False)
    assert torch.equal(found.output, expected.output.bfloat16())
