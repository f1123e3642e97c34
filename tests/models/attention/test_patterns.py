"""Sparse patterns against a softmax over all keys but those that the papers leave out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

from foretell.models.attention.evidence import Dense, Evidence, Sparse
from foretell.models.attention.mechanism import MECHANISMS
from foretell.models.attention.patterns import PatternAttention, PatternConfig
from tests.models.attention.by_hand import (
    Array,
    equal,
    heads_of,
    merged,
    numbers,
    projected,
    softmax,
)
from tests.models.attention.places import D_MODEL, HEADS, made, site_of


def local(window: int) -> dict[str, Any]:
    return {"mechanism": "local", "window": window}


def stride(dilation: int | None) -> dict[str, Any]:
    return {"mechanism": "stride", "dilation": dilation}


def some(tokens: int, added: int = 0) -> dict[str, Any]:
    return {"mechanism": "global", "global_tokens": tokens, "added_tokens": added}


def union(*patterns: dict[str, Any]) -> dict[str, Any]:
    return {"mechanism": "union", "patterns": patterns}


CASES = {
    "itself": (7, local(1)),
    "local, one block": (24, local(3)),
    "local, ragged blocks": (70, local(3)),
    "local, wide": (140, local(40)),
    "local, everything": (24, local(100)),
    "stride": (24, stride(4)),
    "stride, ragged": (23, stride(5)),
    "stride, the root": (30, stride(None)),
    "stride, beyond the end": (9, stride(100)),
    "global": (24, some(5)),
    "global, all": (5, some(8)),
    "global, added": (24, some(2, 3)),
    # The first two patterns are from Child et al., the others from BigBird.
    "local and stride": (70, union(local(4), stride(4))),
    "stride and local": (70, union(stride(6), local(5))),
    "local and global": (70, union(local(3), some(4, 1))),
    "all": (70, union(stride(9), some(3), local(5))),
    "a union in a union": (40, union(union(stride(9), local(2)), stride(6))),
    "two with added tokens": (40, union(some(2, 1), some(3, 2))),
}
EACH = pytest.mark.parametrize(("length", "fields"), CASES.values(), ids=CASES)
BOTH = pytest.mark.parametrize("causal", [False, True])


def reads(fields: dict[str, Any], length: int, query: int, key: int) -> bool:
    """Whether a query reads a key, by the papers' definitions."""
    match fields["mechanism"]:
        case "local":
            return abs(query - key) < fields["window"]
        case "stride":
            return (query - key) % (fields["dilation"] or int(length**0.5)) == 0
        case "global":
            count = min(fields["global_tokens"], length)
            chosen = {int(i * length / count) for i in range(count)}
            return query in chosen or key in chosen or query == key
        case _:
            return any(reads(one, length, query, key) for one in fields["patterns"])


def mask(fields: dict[str, Any], length: int, causal: bool) -> Array:
    return np.array(
        [
            [
                0 if reads(fields, length, i, j) and not (causal and j > i) else -np.inf
                for j in range(length)
            ]
            for i in range(length)
        ]
    )


def make(fields: dict[str, Any], length: int, causal: bool) -> PatternAttention:
    module = made(fields, site_of(length, causal=causal))
    assert isinstance(module, PatternAttention)
    return module


def inputs(length: int) -> Tensor:
    torch.manual_seed(1)
    return 3 * torch.randn(2, length, D_MODEL, dtype=torch.float64)


def by_formula(
    module: PatternAttention, tokens: Tensor, fields: dict[str, Any], causal: bool
) -> tuple[Array, Array]:
    """The output, and the weights `[batch, heads, query, key]`."""
    query, key, value = projected(module, tokens, tokens)
    length = tokens.shape[1]
    scores = query @ key.swapaxes(-1, -2) / np.sqrt(query.shape[-1])
    scores = scores + mask(fields, length, causal)
    if module.tokens is not None:
        learned = numbers(module.tokens)[None]
        more_keys = heads_of(module.key, learned, HEADS)
        more = query @ more_keys.swapaxes(-1, -2) / np.sqrt(query.shape[-1])
        scores = np.concatenate([more, scores], axis=-1)
        more_values = heads_of(module.value, learned, HEADS)
        value = np.concatenate([np.repeat(more_values, len(tokens), axis=0), value], axis=2)
    weights = softmax(scores)
    return merged(module, weights @ value), weights[..., -length:]


def as_map(evidence: Evidence | None, length: int) -> Array:
    if isinstance(evidence, Dense):
        return numbers(evidence.weights)
    assert isinstance(evidence, Sparse)
    keys, weights = evidence.keys.numpy(), numbers(evidence.weights)
    found = np.zeros((*keys.shape[:3], length + 1))
    assert not weights[keys < 0].any()
    np.put_along_axis(found, keys, weights, axis=-1)
    return found[..., :length]


@BOTH
@EACH
def test_pattern_is_a_softmax_over_the_allowed_keys(
    length: int, fields: dict[str, Any], causal: bool
) -> None:
    module, tokens = make(fields, length, causal), inputs(length)
    output, weights = by_formula(module, tokens, fields, causal)
    shown = module(tokens, tokens, explain=True)
    equal(module(tokens, tokens).output, output)
    equal(shown.output, output)
    np.testing.assert_allclose(as_map(shown.evidence, length), weights, rtol=0, atol=1e-10)


@BOTH
def test_evidence_of_few_keys_is_sparse(causal: bool) -> None:
    """The width is the largest number of keys of a query; absent keys come last."""
    tokens = inputs(70)
    module = make(union(local(4), stride(7)), 70, causal)
    evidence = module(tokens, tokens, explain=True).evidence
    assert isinstance(evidence, Sparse)
    read = np.isfinite(mask(union(local(4), stride(7)), 70, causal))
    assert evidence.keys.shape == (2, HEADS, 70, read.sum(axis=1).max())
    expected = [[*np.flatnonzero(row), *[-1] * 20][: evidence.keys.shape[-1]] for row in read]
    np.testing.assert_array_equal(evidence.keys[1, 1], expected)


def test_union_adds_only_missing_tokens() -> None:
    tokens = inputs(24)
    evidence = make(some(2, 3), 24, False)(tokens, tokens, explain=True).evidence
    assert isinstance(evidence, Dense)
    assert evidence.weights.shape == (2, HEADS, 24, 24)
    assert (evidence.weights.sum(dim=-1) < 1).all()


@pytest.mark.parametrize("fields", [local(16), some(4, 2), union(local(16), some(4))])
@BOTH
def test_tables_grow_linearly_with_the_length(fields: dict[str, Any], causal: bool) -> None:
    config = MECHANISMS.read(fields)
    assert isinstance(config, PatternConfig)
    sizes = [
        sum(mask.size for *_, mask in config.pattern(length, causal=causal).tables())
        for length in (512, 1024)
    ]
    assert sizes[1] == 2 * sizes[0]


@pytest.mark.parametrize(
    ("fields", "length", "causal", "shape"),
    [
        (stride(None), 1024, False, (1024, 32)),
        (stride(1000), 9, False, (9, 1)),
        (local(40), 200, False, (200, 118)),
        (local(40), 200, True, (200, 79)),
        # Products of a few queries are not faster.
        (local(2), 200, False, (200, 34)),
    ],
)
def test_area_has_a_small_table(
    fields: dict[str, Any], length: int, causal: bool, shape: tuple[int, int]
) -> None:
    config = MECHANISMS.read(fields)
    assert isinstance(config, PatternConfig)
    ((_, _, mask),) = config.pattern(length, causal=causal).tables()
    assert mask.shape == shape


def test_overlapping_areas_are_counted_once() -> None:
    """Local attention has the query itself already, beside global tokens."""
    config = MECHANISMS.read(union(local(2), some(2)))
    assert isinstance(config, PatternConfig)
    assert len(config.pattern(100, causal=False).areas) == 3
    assert len(config.pattern(100, causal=False).tables()) == 2


@pytest.mark.parametrize(
    ("patterns", "message"),
    [
        (["local", "softmax"], "patterns\n.*softmax is not a pattern of keys, so . cannot join it"),
        (["local"], "at least 2 items"),
    ],
)
def test_invalid_unions_are_refused(patterns: list[str], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        MECHANISMS.read({"mechanism": "union", "patterns": patterns})
