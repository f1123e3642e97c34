"""Attention within clusters of queries and keys: the Routing Transformer (arXiv:2003.05997)."""

from __future__ import annotations

import math
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional
from typing_extensions import override

from foretell.bundle.attention import AttentionStage
from foretell.models.attention.evidence import Dense
from foretell.models.attention.heads import HeadedAttention
from foretell.models.attention.mechanism import MECHANISMS, Attended, Call, MechanismConfig, Site
from foretell.models.layers.repetition import repeated


@MECHANISMS.add
class RoutingConfig(MechanismConfig):
    """The queries nearest to the centre of a cluster read the keys nearest to it.

    Attributes:
        clusters: Number of clusters; by default the root of the length, which makes maps smallest.
        decay: Decay of the centres in training.
    """

    mechanism: Literal["routing"] = "routing"
    clusters: int | None = Field(
        default=None,
        ge=1,
        description="Clusters of queries and keys; the root of the length if not given.",
    )
    decay: float = Field(
        default=0.999, ge=0, le=1, description="Share of the centres that a step of training keeps."
    )

    @override
    def check(self, site: Site) -> None:
        super().check(site)
        if site.query != site.key:
            raise ValueError("attention: routing has the same clusters for queries and keys")
        if self.count(site) > site.key.length:
            raise ValueError(f"clusters: expected at most the length, {site.key.length}")

    @override
    def build(self, site: Site) -> nn.Module:
        return Routing(site, self)

    @override
    def describe(self, name: str, site: Site) -> tuple[AttentionStage, ...]:
        length, count = site.key.length, self.count(site)
        places = (site.heads, 2 * count)
        taken = math.ceil(length / count)
        return (self.stage(name, site, choice=((*places, taken), (*places, length))),)

    def count(self, site: Site) -> int:
        """Number of clusters."""
        return self.clusters or round(math.sqrt(site.key.length))


class Routing(HeadedAttention):
    """Softmax within clusters: the w = length / clusters queries and keys nearest to each centre.

    Algorithm 1 of the paper. Vectors are near if their product with the centre is large; queries
    and keys have length 1 here. A token in several clusters gets the mean of their outputs, and a
    token in no cluster gets 0. In training, centres follow the mean of the vectors nearest to them.

    The w nearest tokens depend on later ones, so there is no causal form.

    Args:
        site: Place of the attention.
        config: Settings of the mechanism.
    """

    def __init__(self, site: Site, config: RoutingConfig) -> None:
        super().__init__(site)
        self.decay = config.decay
        drawn = torch.randn(site.heads, config.count(site), site.head_width)
        self.centres = nn.Buffer(functional.normalize(drawn, dim=-1))

    @override
    def mix(self, query: Tensor, key: Tensor, value: Tensor, call: Call) -> Attended:
        heads, time, features = query.shape[1:]
        count = self.centres.shape[1]
        taken = math.ceil(time / count)
        units = [_unit(each.detach()) for each in (query, key)]
        near = torch.cat([self.centres @ each.transpose(-1, -2) for each in units], dim=2)
        chosen = near.topk(taken, dim=-1).indices
        if self.training:
            both = torch.cat([near[:, :, :count], near[:, :, count:]], dim=3)
            self._follow(torch.cat(units, dim=2), both)
        at_query, at_key = chosen[:, :, :count], chosen[:, :, count:]
        of_query, of_key = (at.reshape(-1, heads, count * taken) for at in (at_query, at_key))
        clusters = (-1, heads, count, taken, features)
        queries, keys, values = (
            each.gather(2, repeated(at, features)).reshape(clusters)
            for each, at in ((query, of_query), (key, of_key), (value, of_key))
        )
        weights = (queries @ keys.transpose(-1, -2) * features**-0.5).softmax(dim=-1)
        mixed = self.drop(weights) @ values
        # The number of clusters of a query is summed beside their outputs.
        found = functional.pad(mixed, (0, 1), value=1).reshape(
            -1, heads, count * taken, features + 1
        )
        total = _zeros(value, features + 1).scatter_add(2, repeated(of_query, features + 1), found)
        times = total[..., features:].clamp_min(1)
        output = total[..., :features] / times
        if not call.explain:
            return Attended(output)
        rows = _zeros(found, time).reshape(-1, heads, count, taken, time)
        at = repeated(at_key, taken).transpose(3, 4)
        # Mixed precision brings sums and products in different types.
        rows = rows.scatter(4, at, weights.to(rows.dtype))
        rows = rows.reshape(-1, heads, count * taken, time).to(value.dtype)
        read = _zeros(value, time).scatter_add(2, repeated(of_query, time), rows)
        return Attended(output, Dense(read / times, chosen, near))

    def _follow(self, units: Tensor, near: Tensor) -> None:
        """Move the centres towards the mean of the vectors nearest to them."""
        nearest = functional.one_hot(near.argmax(dim=2), near.shape[2]).to(units.dtype)
        total = (nearest.transpose(-1, -2) @ units).sum(dim=0)
        # A centre without tokens stays where it is.
        moved = nearest.sum(dim=(0, 2))[..., None] > 0
        means = torch.where(moved, _unit(total), self.centres)
        self.centres.lerp_(means.to(self.centres.dtype), 1 - self.decay)


def _unit(vectors: Tensor) -> Tensor:
    """Vectors `[…, features]` scaled to length 1."""
    # Squares may be more than half precision holds.
    vectors = vectors.to(torch.promote_types(vectors.dtype, torch.float32))
    return vectors / (vectors * vectors).sum(dim=-1, keepdim=True).clamp_min(1e-24).sqrt()


def _zeros(like: Tensor, features: int) -> Tensor:
    """Zeros `[…, features]` like `[…, n]`."""
    return torch.zeros_like(like[..., :1]).expand(*like.shape[:-1], features)
