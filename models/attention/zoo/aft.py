"""Attention-free transformers: each feature reads by its keys and positions (arXiv:2105.14103)."""

from __future__ import annotations

from math import inf, isqrt
from typing import ClassVar, Literal, NamedTuple

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional
from typing_extensions import override

from foretell.models.attention.evidence import Dense
from foretell.models.attention.heads import HeadedAttention, positions
from foretell.models.attention.mechanism import MECHANISMS, Attended, Call, MechanismConfig, Site

# Initial spread of biases, like that of the factors in the paper.
_SPREAD = 0.01
# Positions of a chunk, whose sums are computed first.
_CHUNK = 16


@MECHANISMS.add
class AftFull(MechanismConfig):
    """Weights by keys and by positions of queries and keys (Zhai et al., 2021, equation 2).

    A feature reads key `s` at query `t` by `exp(k[s] + w[t, s])`, and the query is a gate. There
    is no product of queries and keys: `w` is learned, for the lengths at hand.
    """

    mechanism: Literal["aft-full"] = "aft-full"
    has_causal: ClassVar[bool] = True

    @override
    def build(self, site: Site) -> nn.Module:
        return AftAttention(site, torch.ones(site.query.length, site.key.length))


@MECHANISMS.add
class AftLocal(MechanismConfig):
    """`AftFull` with biases of near positions; distant ones have a bias of 0.

    Attributes:
        window: Distance from which on the bias is 0.
    """

    mechanism: Literal["aft-local"] = "aft-local"
    window: int = Field(
        default=16, ge=1, description="Positions less than this far from a query have biases."
    )
    has_causal: ClassVar[bool] = True

    @override
    def check(self, site: Site) -> None:
        super().check(site)
        for axis in (site.query, site.key):
            if not axis.in_time:
                raise ValueError(f"attention: {axis.of} have no order that aft-local needs")

    @override
    def build(self, site: Site) -> nn.Module:
        query, key = positions(site)
        near = (query[:, None] - key).abs() < self.window
        return AftAttention(site, near.float())


@MECHANISMS.add
class AftSimple(MechanismConfig):
    """Weights by keys alone, which is linear in the length."""

    mechanism: Literal["aft-simple"] = "aft-simple"
    has_causal: ClassVar[bool] = True

    @override
    def build(self, site: Site) -> nn.Module:
        return AftAttention(site)


class AftAttention(HeadedAttention):
    """Means of values, each feature with its own weights, gated by the query.

    Heads share the biases of positions: they are groups of features, whose mean weights are the
    evidence. No weights are formed that could be dropped in training.

    Args:
        site: Place of the attention.
        biased: 1 where positions have a bias, 0 elsewhere, `[query, key]`; None for no biases.
    """

    def __init__(self, site: Site, biased: Tensor | None = None) -> None:
        super().__init__(site)
        self.biased = None if biased is None else nn.Buffer(biased, persistent=False)
        self.bias = None if biased is None else nn.Parameter(_SPREAD * torch.randn(biased.shape))

    @override
    def mix(self, query: Tensor, key: Tensor, value: Tensor, call: Call) -> Attended:
        mean = causal_mean if self.causal else whole_mean
        if self.bias is not None and self.biased is not None:
            mixed, weights = mean(key, value, self.bias * self.biased, explain=call.explain)
        else:
            mixed = running_mean(key, value) if self.causal else plain_mean(key, value)
            weights = None
            if call.explain:
                # A graph contains this as a constant; `zeros` would be an operator.
                none = key.new_full((query.shape[2], key.shape[2]), 0.0)
                weights = mean(key, value, none, explain=True)[1]
        return Attended(query.sigmoid() * mixed, None if weights is None else Dense(weights))


def plain_mean(key: Tensor, value: Tensor) -> Tensor:
    """The mean of values `[batch, heads, key, features]` by `exp(key)`, `[batch, heads, 1, …]`."""
    return (key.softmax(dim=-2) * value).sum(dim=-2, keepdim=True)


def running_mean(key: Tensor, value: Tensor) -> Tensor:
    """The mean of values by `exp(key)` up to each position, linear in the length.

    It is computed within chunks, and then from chunk to chunk.
    """
    heads, length, features = key.shape[1:]
    count = -(-length // _CHUNK)
    key, value = (
        functional.pad(part, (0, 0, 0, count * _CHUNK - length)).reshape(
            -1, heads, count, _CHUNK, features
        )
        for part in (key, value)
    )
    within = _run(_Sums(key, key.new_ones(_CHUNK, 1), value))
    chunks = _run(_Sums(*(part[..., -1, :] for part in within)))
    before = _Sums(*(part[..., None, :] for part in _delayed(chunks, 1)))
    found = _joined(within, before)
    mean = (found.mixed / found.total).reshape(-1, heads, count * _CHUNK, features)
    return mean[:, :, :length]


class _Sums(NamedTuple):
    """Sums of exponentials relative to the largest one, and that one."""

    largest: Tensor
    total: Tensor
    mixed: Tensor


def _run(sums: _Sums) -> _Sums:
    """Sums over all positions up to each, by doubling the span."""
    span, length = 1, sums.largest.shape[-2]
    while span < length:
        sums = _joined(sums, _delayed(sums, span))
        span *= 2
    return sums


def _delayed(sums: _Sums, steps: int) -> _Sums:
    """Sums of the positions `steps` earlier; empty before the first."""
    return _Sums(
        *(
            functional.pad(part[..., :-steps, :], (0, 0, steps, 0), value=none)
            for part, none in zip(sums, (-inf, 0.0, 0.0), strict=True)
        )
    )


def _joined(one: _Sums, other: _Sums) -> _Sums:
    """Sums over the positions of both; at least one is not empty."""
    largest = torch.maximum(one.largest, other.largest)
    own, others = (one.largest - largest).exp(), (other.largest - largest).exp()
    sums = (own * left + others * right for left, right in zip(one[1:], other[1:], strict=True))
    return _Sums(largest, *sums)


def whole_mean(
    key: Tensor, value: Tensor, bias: Tensor, *, explain: bool
) -> tuple[Tensor, Tensor | None]:
    """The mean of values by `exp(key + bias)` over all positions.

    Args:
        key: `[batch, heads, key, features]`.
        value: `[batch, heads, key, features]`.
        bias: `[query, key]`.
        explain: Return the weights as well.

    Returns:
        `[batch, heads, query, features]`, and the weights of keys, as means over the features of a
        head, `[batch, heads, query, key]`.
    """
    # The divisors of both softmaxes cancel, and neither can overflow.
    by_position, by_key = bias.softmax(dim=-1), key.softmax(dim=-2)
    total = by_position @ by_key
    mixed = by_position @ (by_key * value) / total
    if not explain:
        return mixed, None
    return mixed, by_position * ((1 / total) @ by_key.transpose(-1, -2)) / key.shape[3]


def causal_mean(
    key: Tensor, value: Tensor, bias: Tensor, *, explain: bool
) -> tuple[Tensor, Tensor | None]:
    """The mean of values by `exp(key + bias)` up to each position.

    There are about as many chunks as a chunk has positions. Chunks before a query's own are read by
    products of exponentials, relative to the largest key and the largest bias. The keys of its own
    chunk are weighted one by one, together with all earlier chunks as one more key.
    """
    heads, length, features = key.shape[1:]
    size = isqrt(length)
    count = -(-length // size)
    padding = count * size - length
    # One row for each feature: [rows, chunks, size].
    key, value = (
        functional.pad(part.transpose(-1, -2), (0, padding)).reshape(-1, count, size)
        for part in (key, value)
    )
    # The first chunk has no earlier one: it reads itself here, and `first` removes it below.
    none = bias.new_full((count, count), -inf)
    before = torch.cat([none[:1].triu(1), none.triu()[1:]])
    first = none.triu()[:, :1, None]
    later = bias.new_full((size, size), -inf).triu(1)
    itself = torch.eye(count, dtype=bias.dtype, device=bias.device)[:, None, :, None]

    blocks = functional.pad(bias, (0, padding, 0, padding)).reshape(count, size, count, size)
    own = (blocks * itself).sum(dim=2) + later
    past = (blocks + before[:, None, :, None]).reshape(count, size, -1)
    strongest = past.detach().amax(dim=-1, keepdim=True)
    by_position = (past - strongest).exp()

    largest = key.detach().amax(dim=-1, keepdim=True)
    of_chunks = largest.transpose(-1, -2) + before
    so_far = of_chunks.detach().amax(dim=-1, keepdim=True)
    share = (of_chunks - so_far).exp()
    by_key = (share[..., None] * (key - largest).exp()[:, None]).reshape(-1, count, count * size)
    by_chunk = by_key.transpose(0, 1)
    total, mixed = (
        (part @ by_position.transpose(-1, -2)).transpose(0, 1)[..., None]
        for part in (by_chunk, by_chunk * value.reshape(-1, count * size))
    )

    one_by_one, at_once = key[:, :, None] + own, so_far[..., None] + (strongest + first)
    weights = torch.cat([one_by_one, at_once], dim=-1).softmax(dim=-1)
    near, far = weights[..., :-1], weights[..., -1:]
    whole = near.sum(dim=-1, keepdim=True) + far * total
    mixed = ((near * value[:, :, None]).sum(dim=-1, keepdim=True) + far * mixed) / whole
    mixed = mixed.reshape(-1, heads, features, count * size)[..., :length].transpose(-1, -2)
    if not explain:
        return mixed, None

    reads = (near / whole).reshape(-1, heads, features, count, size, size).sum(dim=2)
    block = (reads[..., None, :] * itself).reshape(-1, heads, count, size, count * size)
    query = (far / whole).reshape(-1, heads, features, count, size).permute(0, 1, 3, 4, 2)
    read = by_key.reshape(-1, heads, features, count, count * size).transpose(2, 3)
    found = (block + query @ read * by_position).reshape(-1, heads, *[count * size] * 2)
    return mixed, found[..., :length, :length] / features
