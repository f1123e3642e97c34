"""Attention to fewer keys than there are: convolutions and mixtures of them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from foretell.models.attention.zoo.compressed import CompressedAttention
from tests.models.attention.by_hand import (
    Array,
    assert_gives,
    merged,
    numbers,
    projected,
    softmax,
)
from tests.models.attention.places import D_MODEL, HEADS, made, site_of


def series(*lengths: int) -> list[Tensor]:
    torch.manual_seed(1)
    return [2 * torch.randn(3, length, D_MODEL, dtype=torch.float64) for length in lengths]


def compressed(compression: int, length: int, *, causal: bool = False) -> CompressedAttention:
    settings = {"mechanism": "compressed", "compression": compression}
    module = made(settings, site_of(length, causal=causal))
    assert isinstance(module, CompressedAttention)
    return module


def convolved(layer: nn.Linear, rows: Array, compression: int) -> Array:
    """A convolution over `[batch, heads, key, features]`, step by step."""
    batch, heads, length, features = rows.shape
    width = heads * features
    kernel = numbers(layer.weight).reshape(width, compression, width)
    merged = rows.swapaxes(1, 2).reshape(batch, length, width)
    blocks = []
    for start in range(0, length, compression):
        block = numbers(layer.bias) + np.zeros((batch, width))
        for i, step in enumerate(range(start, min(start + compression, length))):
            block += merged[:, step] @ kernel[:, i].T
        blocks.append(block)
    return np.stack(blocks, axis=1).reshape(batch, -1, heads, features).swapaxes(1, 2)


def by_formula(
    module: CompressedAttention, tokens: Tensor, source: Tensor, compression: int
) -> tuple[Array, Array]:
    """The output, and the weights of blocks."""
    query, key, value = projected(module, tokens, source)
    keys = convolved(module.of_keys, key, compression)
    values = convolved(module.of_values, value, compression)
    output, weights = np.zeros_like(query), np.zeros((*query.shape[:3], keys.shape[2]))
    for i in range(query.shape[2]):
        read, mixed = keys, values
        if module.causal:
            # Blocks that are complete before the query's block, and the query itself.
            read, mixed = (
                np.concatenate([each[:, :, : i // compression], itself[:, :, i : i + 1]], axis=2)
                for each, itself in ((keys, key), (values, value))
            )
        row = softmax(query[:, :, i : i + 1] @ read.swapaxes(-1, -2) / np.sqrt(query.shape[-1]))
        output[:, :, i : i + 1] = row @ mixed
        count = row.shape[-1] - module.causal
        weights[:, :, i, :count] = row[:, :, 0, :count]
    return merged(module, output), weights


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("compression", "length"), [(3, 24), (3, 23), (4, 9), (1, 6), (7, 5)])
def test_compressed_is_attention_to_a_convolution(
    compression: int, length: int, causal: bool
) -> None:
    module, (tokens,) = compressed(compression, length, causal=causal), series(length)
    expected = by_formula(module, tokens, tokens, min(compression, length))
    assert_gives(module, tokens, tokens, *expected)


def test_compressed_reads_another_source() -> None:
    module, (tokens, source) = compressed(3, 11), series(5, 11)
    assert_gives(module, tokens, source, *by_formula(module, tokens, source, 3))


def test_convolution_equals_torch() -> None:
    """Rows fill blocks, or leave the last block incomplete."""
    module = compressed(3, 11)
    (rows,) = series(11)
    layer = nn.Conv1d(D_MODEL, D_MODEL, kernel_size=3, stride=3).double()
    weight = module.of_keys.weight.detach().reshape(D_MODEL, 3, D_MODEL)
    layer.weight.data, layer.bias.data = weight.transpose(1, 2), module.of_keys.bias.detach()
    padded = nn.functional.pad(rows, (0, 0, 0, 1)).transpose(1, 2)
    expected = layer(padded).detach().transpose(1, 2).reshape(3, 4, HEADS, -1).transpose(1, 2)
    found = convolved(module.of_keys, module.split(rows).numpy(), 3)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("queries", [24, 14])
def test_linformer_is_equation_7(queries: int) -> None:
    """softmax(Q (E K)ᵀ / √d) (F V)."""
    module = made({"mechanism": "linformer", "landmarks": 5}, site_of(24))
    tokens, source = series(queries, 24)
    query, key, value = projected(module, tokens, source)
    e, f = numbers(module.of_keys), numbers(module.of_values)
    weights = softmax(query @ (e @ key).swapaxes(-1, -2) / np.sqrt(query.shape[-1]))
    assert_gives(module, tokens, source, merged(module, weights @ (f @ value)), weights)
