"""Attention within buckets of a hash that is the same for near vectors (arXiv:2001.04451)."""

from __future__ import annotations

import math
from typing import ClassVar, Literal

import torch
from pydantic import Field, field_validator
from torch import Tensor, nn
from torch.nn import functional
from typing_extensions import override

from foretell.bundle.attention import AttentionStage
from foretell.models.attention.evidence import Dense
from foretell.models.attention.heads import HeadedAttention
from foretell.models.attention.mechanism import MECHANISMS, Attended, Call, MechanismConfig, Site
from foretell.models.layers.repetition import repeated

# Summands of scores: of a key in another bucket, and of the token itself, which comes last.
_NEVER, _LAST = -1e30, -1e20
# bucket * length + position is sorted in float32, which holds no larger integers exactly.
_LARGEST = 2**24


@MECHANISMS.add
class ReformerConfig(MechanismConfig):
    """Tokens read near tokens in the order of the buckets of a hash.

    Attributes:
        buckets: Buckets of a hash; by default as many as chunks, and at least 4.
        rounds: Hashes, each with its own rotation; a token reads keys that any of them finds.
        chunk: Sorted tokens of a chunk; the causal form has no chunks.
    """

    mechanism: Literal["reformer"] = "reformer"
    buckets: int | None = Field(
        default=None,
        ge=4,
        description="Buckets of a hash, an even number; length / chunk if not given.",
    )
    rounds: int = Field(default=2, ge=1, description="Hashes, each by a rotation of its own.")
    chunk: int = Field(
        default=32, ge=1, description="Tokens of a sorted chunk; they read it and the one before."
    )

    has_causal: ClassVar[bool] = True

    @field_validator("buckets")
    @classmethod
    def _even(cls, buckets: int | None) -> int | None:
        if buckets is not None and buckets % 2:
            raise ValueError("expected an even number: half of the buckets mirror the others")
        return buckets

    @override
    def check(self, site: Site) -> None:
        super().check(site)
        if site.query != site.key:
            raise ValueError("attention: reformer has one vector for query and key of a token")
        if self.count(site) * site.key.length > _LARGEST:
            raise ValueError(f"buckets: expected at most {_LARGEST // site.key.length} here")

    @override
    def build(self, site: Site) -> nn.Module:
        return Reformer(site, self)

    @override
    def describe(self, name: str, site: Site) -> tuple[AttentionStage, ...]:
        places = (site.heads, self.rounds * site.key.length)
        return (self.stage(name, site, choice=((*places, 1), (*places, self.count(site)))),)

    def count(self, site: Site) -> int:
        """Buckets of a hash."""
        return self.buckets or max(4, 2 * round(site.key.length / self.chunk / 2))


class Reformer(HeadedAttention):
    """Softmax over keys of a token's bucket that are in its chunk or the one before.

    Equations 3 to 6 of the paper. Queries are the keys as well, which are normalised. A hash is the
    index of the largest of [xR; -xR]; tokens are sorted by bucket, then position, and cut in
    chunks. Rounds are weighted by their share of all exponentials; a pair that several rounds find
    counts once. A query reads its own token only if it finds no other. The rotations R are drawn
    once.

    If causal, a query reads all keys of its bucket that are not later. The paper's chunks would
    depend on later tokens.

    Args:
        site: Place of the attention.
        config: Settings of the mechanism.
    """

    def __init__(self, site: Site, config: ReformerConfig) -> None:
        super().__init__(site)
        del self.key
        self.chunk = config.chunk
        shape = site.heads, config.rounds, site.head_width, config.count(site) // 2
        self.rotations = nn.Buffer(torch.randn(shape))

    @override
    def forward(
        self,
        tokens: Tensor,
        source: Tensor,
        *,
        inherited: Tensor | None = None,
        explain: bool = False,
    ) -> Attended:
        query, value = self.split(self.query(tokens)), self.split(self.value(source))
        mixed = self.mix(query, query, value, Call(inherited, explain))
        return mixed._replace(output=self.merge(mixed.output))

    @override
    def mix(self, query: Tensor, key: Tensor, value: Tensor, call: Call) -> Attended:
        # Squares may be more than half precision holds.
        key = query.to(torch.promote_types(query.dtype, torch.float32))
        norm = (key * key).sum(dim=-1, keepdim=True).clamp_min(1e-24).sqrt()
        key, scale = key / norm, norm * key.shape[-1] ** -0.5
        both = torch.cat([self.rotations, -self.rotations], dim=-1)
        hashes = query.detach()[:, :, None] @ both
        # `topk`, because a maximum needs cuDNN.
        chosen = hashes.topk(1, dim=-1).indices
        bucket = chosen[..., 0].float()
        if self.causal:
            weights = _weights(key, scale, self._times(bucket))
            output = self.drop(weights) @ value
        else:
            output, cells = self._mix_chunks(key, scale, value, bucket)
        if not call.explain:
            return Attended(output)
        if not self.causal:
            weights = _weights(key, scale, _reads(cells, cells).sum(dim=2))
        return Attended(output, Dense(weights, chosen.flatten(2, 3), hashes.flatten(2, 3)))

    def _mix_chunks(
        self, key: Tensor, scale: Tensor, value: Tensor, bucket: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Mix values in the order of the buckets."""
        heads, rounds, time = bucket.shape[1:]
        chunk = min(self.chunk, time)
        count = math.ceil(time / chunk)
        step = torch.arange(time, device=key.device)
        order = (bucket * time + step).topk(time, largest=False).indices
        # The order of an order is its inverse.
        place = order.float().topk(time, largest=False).indices
        cells = bucket.gather(-1, order) * (count + 1) + (step // chunk).float()
        cells = cells.gather(-1, place)

        # Padding has cell 0, more than one below all others, so no token reads it.
        parts = torch.cat([key, value, scale, (cells + 3).transpose(2, 3)], dim=-1)
        found = _take(parts, order.flatten(2)).reshape(-1, heads, rounds, time, parts.shape[-1])
        found = functional.pad(found, (0, 0, 0, count * chunk - time))
        found = found.reshape(-1, heads, rounds, count, chunk, parts.shape[-1])
        near = found
        if count > 1:
            before = functional.pad(found[:, :, :, :-1], (0, 0, 0, 0, 1, 0))
            near = torch.cat([before, found], dim=-2)
        features = value.shape[-1]
        sizes = [features, features, 1, rounds]
        keys, _, scales, query_cells = torch.split(found, sizes, dim=-1)
        near_keys, values, _, key_cells = torch.split(near, sizes, dim=-1)
        scores = keys * scales @ near_keys.transpose(-1, -2)
        # In the order of a round: whether a query reads a key in each of the rounds.
        reads = _reads(query_cells.transpose(-1, -2), key_cells.transpose(-1, -2))
        own = torch.stack([reads[:, :, i, :, i] for i in range(rounds)], dim=2)
        masked = _masked(scores, own)
        top = masked.detach().amax(dim=-1, keepdim=True)
        shares = (masked - top).exp()
        if rounds > 1:
            shares = shares / reads.sum(dim=4).clamp_min(1)
        mixed = self.drop(shares) @ values
        rows = torch.cat([mixed, shares.sum(dim=-1, keepdim=True), top], dim=-1)
        rows = _take(rows.reshape(-1, heads, rounds, count * chunk, features + 2), place)
        factor = rows[..., features + 1 :].softmax(dim=2)
        total = (rows[..., : features + 1] * factor).sum(dim=2)
        return total[..., :features] / total[..., features:], cells

    def _times(self, bucket: Tensor) -> Tensor:
        """Number of rounds in which a query shares a bucket with a key that is not later."""
        off = bucket[..., None] - torch.arange(2 * self.rotations.shape[-1], device=bucket.device)
        # A product of one-hot buckets, which is faster than comparing all pairs.
        found = (1 - off * off).relu().transpose(2, 3).flatten(3)
        time = bucket.shape[-1]
        return found @ found.transpose(-1, -2) * torch.ones(time, time, device=found.device).tril()


def _weights(key: Tensor, scale: Tensor, times: Tensor) -> Tensor:
    """The map of all rounds together, `[batch, heads, query, key]`."""
    scores = key * scale @ key.transpose(-1, -2)
    return _masked(scores, times.clamp_max(1)).softmax(dim=-1)


def _reads(query: Tensor, key: Tensor) -> Tensor:
    """1 where a query of a cell reads a key of a cell, else 0."""
    # From chunk to chunk, cells of one bucket differ by one, and no others do.
    off = (query - 0.5)[..., :, None] - key[..., None, :]
    return (1.25 - off * off).relu()


def _masked(scores: Tensor, reads: Tensor) -> Tensor:
    """Scores `[…, query, key]` where a query reads a key; the last keys are the queries."""
    query, key = scores.shape[-2:]
    itself = functional.pad(torch.eye(query, device=scores.device), (key - query, 0))
    return scores + _NEVER * (1 - reads) + _LAST * itself


def _take(rows: Tensor, at: Tensor) -> Tensor:
    """Rows of `[…, rows, features]` at `[…, taken]`."""
    return rows.gather(-2, repeated(at, rows.shape[-1]))
