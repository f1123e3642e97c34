"""Attention to a block of steps and to a sorted block (arXiv:2002.11296)."""

from __future__ import annotations

import math
from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional
from typing_extensions import override

from foretell.models.attention.evidence import Dense
from foretell.models.attention.heads import HeadedAttention
from foretell.models.attention.mechanism import MECHANISMS, Attended, Call, MechanismConfig, Site

# Summand of the scores of keys that are not read.
_NEVER = -1e30


@MECHANISMS.add
class SinkhornConfig(MechanismConfig):
    """Blocks read themselves and a mixture of blocks that a small network sorts to them.

    Attributes:
        block: Steps of a block; by default a divisor of the length near its root, or the root.
        iterations: Times that rows and columns of the permutation are normalised.
        temperature: Divisor of the scores of blocks.
    """

    mechanism: Literal["sinkhorn"] = "sinkhorn"
    block: int | None = Field(
        default=None,
        ge=1,
        description="Steps of a block; about the root of the length if not given.",
    )
    iterations: int = Field(
        default=5, ge=1, description="Times that a permutation of blocks is normalised."
    )
    temperature: float = Field(
        default=0.75, gt=0, description="Divisor of the scores of a permutation."
    )

    has_causal: ClassVar[bool] = True

    @override
    def check(self, site: Site) -> None:
        super().check(site)
        if site.query != site.key:
            raise ValueError("attention: sinkhorn has the same blocks for queries and keys")

    @override
    def build(self, site: Site) -> nn.Module:
        return Sinkhorn(site, self)


def _block(length: int) -> int:
    """A divisor of a length between half its root and its root, or else the root, rounded up."""
    root = math.sqrt(length)
    divisors = (each for each in range(int(root), 0, -1) if length % each == 0)
    largest = next(divisors)
    return largest if largest >= root / 2 else math.ceil(root)


class Sinkhorn(HeadedAttention):
    """Softmax over the keys of a query's block and keys that are sorted to it.

    Section 3 of the paper. In each head, a net of two layers scores blocks by the sums of their
    queries and keys. Rows and columns are normalised in turn in the logarithm, which makes the
    scores a soft permutation; Gumbel noise is added in training. A step of a sorted block is the
    mixture of the steps at its place in all blocks; steps that pad the last block have no part in
    it, which lowers its weight.

    If causal, a block's sums are over all steps before it, and only earlier blocks are sorted to
    it; the first block has none. A column is normalised by the rows up to each, since others depend
    on later steps. Rows come last, so that they sum to 1.

    Args:
        site: Place of the attention.
        config: Settings of the mechanism.
    """

    def __init__(self, site: Site, config: SinkhornConfig) -> None:
        super().__init__(site)
        self.config = config
        length = site.key.length
        block = min(config.block or _block(length), length)
        features, blocks = site.head_width, math.ceil(length / block)
        self.hidden = _PerHead(self.heads, 2 * features, features)
        self.sort = _PerHead(self.heads, features, blocks)
        absent = (torch.arange(blocks * block) >= length).reshape(blocks, 1, block)
        hidden = torch.zeros(blocks, block, 2 * block)
        hidden[..., block:] = absent
        if self.causal:
            hidden[0, :, :block] = 1
            hidden[..., block:] += torch.ones(block, block).triu(1)
        # Mask of sorted keys, then of a block's own keys; added to scores.
        self.mask = nn.Buffer(_NEVER * hidden, persistent=False)
        self.present = nn.Buffer((~absent[:, 0]).float(), persistent=False)
        self.before = nn.Buffer(torch.ones(blocks, blocks).tril(-1), persistent=False)

    @override
    def mix(self, query: Tensor, key: Tensor, value: Tensor, call: Call) -> Attended:
        heads, time, features = query.shape[1:]
        blocks, block = self.present.shape
        appended = blocks * block - time
        queries, keys, values = (
            functional.pad(each, (0, 0, 0, appended)).reshape(-1, heads, blocks, block, features)
            for each in (query, key, value)
        )
        moved = self._permutation(torch.cat([queries.sum(dim=3), keys.sum(dim=3)], dim=-1))
        sorted_keys, sorted_values = (
            (moved @ each.flatten(3)).reshape(each.shape) for each in (keys, values)
        )
        # Only the last block is padded, and no causal query reads it as a sorted block.
        partly = appended > 0 and not self.causal
        if partly:
            # Share of real steps in a sorted step.
            share = moved @ self.present / moved.sum(dim=-1, keepdim=True)
            sorted_keys = sorted_keys / share.clamp_min(1e-30)[..., None]
        scores = queries @ torch.cat([sorted_keys, keys], dim=3).transpose(-1, -2)
        weights = (scores * features**-0.5 + self.mask).softmax(dim=-1)
        kept = self.drop(weights)
        mixed = kept @ torch.cat([sorted_values, values], dim=3)
        if partly:
            counted = torch.cat([share, torch.ones_like(share)], dim=-1)[..., None]
            total = (weights @ counted).clamp_min(1e-30)
            mixed, weights = mixed / total, weights / total
        output = mixed.reshape(-1, heads, blocks * block, features)[:, :, :time]
        evidence = Dense(self._read(weights, moved)[:, :, :time, :time]) if call.explain else None
        return Attended(output, evidence)

    def _permutation(self, sums: Tensor) -> Tensor:
        """Soft permutation of blocks, `[batch, heads, to, from]`."""
        if self.causal:
            sums = self.before @ sums
        scores: Tensor = self.sort(self.hidden(sums).relu())
        if self.training:
            scores = scores - torch.empty_like(scores).exponential_().log()
        scores = scores / self.config.temperature
        if not self.causal:
            for _ in range(self.config.iterations):
                scores = scores.log_softmax(dim=-1).log_softmax(dim=-2)
            return scores.exp()
        later = _NEVER * (1 - self.before)
        itself = torch.eye(len(later), dtype=later.dtype, device=later.device)
        # A column for each row at which it ends.
        ends = (later - _NEVER * itself)[:, :, None]
        for _ in range(self.config.iterations):
            columns = (scores + later)[:, :, None] + ends
            scores = (columns.log_softmax(dim=-2) * itself[..., None]).sum(dim=-2)
            scores = (scores + later).log_softmax(dim=-1)
        return scores.exp() * self.before

    def _read(self, weights: Tensor, moved: Tensor) -> Tensor:
        """The map, `[batch, heads, query, key]`, from weights of sorted and of own keys."""
        blocks, block = self.present.shape
        of_sorted, own = (part[..., None, :] for part in torch.split(weights, block, dim=-1))
        itself = torch.eye(blocks, dtype=moved.dtype, device=moved.device)
        read = of_sorted * moved[:, :, :, None, :, None] + own * itself[:, None, :, None]
        return read.reshape(-1, self.heads, blocks * block, blocks * block)


class _PerHead(nn.Module):
    """A linear layer of its own for each head."""

    def __init__(self, heads: int, inputs: int, outputs: int) -> None:
        super().__init__()
        bound = inputs**-0.5
        self.weight = nn.Parameter(torch.empty(heads, inputs, outputs).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(heads, 1, outputs).uniform_(-bound, bound))

    def forward(self, features: Tensor) -> Tensor:
        """`[batch, heads, …, inputs]` to outputs."""
        return features @ self.weight + self.bias
