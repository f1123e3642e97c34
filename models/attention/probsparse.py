"""ProbSparse: only the queries that prefer some keys attend (Zhou et al., 2020, arXiv:2012.07436).

The published causal form compares all queries, later ones too, to choose which of them attend.
Later tokens would change earlier outputs, so this module has no causal form.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from typing_extensions import override

from foretell.bundle.attention import AttentionStage
from foretell.models.attention.evidence import Dense
from foretell.models.attention.heads import HeadedAttention
from foretell.models.attention.mechanism import MECHANISMS, Attended, Call, MechanismConfig, Site
from foretell.models.layers.repetition import repeated


@MECHANISMS.add
class ProbSparseConfig(MechanismConfig):
    """Some queries attend, the others read all keys equally.

    Attributes:
        factor: `int(factor * ln length)` queries attend, at least one and at most all.
    """

    mechanism: Literal["probsparse"] = "probsparse"
    factor: float = Field(
        default=5, gt=0, description="Number of queries kept: int(factor * ln length)."
    )

    @override
    def build(self, site: Site) -> nn.Module:
        return ProbSparseAttention(site, self._kept(site))

    @override
    def describe(self, name: str, site: Site) -> tuple[AttentionStage, ...]:
        queries = (site.heads, site.query.length)
        return (self.stage(name, site, choice=((site.heads, self._kept(site)), queries)),)

    def _kept(self, site: Site) -> int:
        length = site.query.length
        return min(max(int(self.factor * math.log(length)), 1), length)


class ProbSparseAttention(HeadedAttention):
    """Softmax attention of the queries whose largest score is most above their mean score.

    Equations 3 and 4. All keys are compared; the published code samples some in every call.

    Args:
        site: Place of the attention.
        kept: Number of queries that attend.
    """

    def __init__(self, site: Site, kept: int) -> None:
        super().__init__(site)
        self.kept = kept

    @override
    def mix(self, query: Tensor, key: Tensor, value: Tensor, call: Call) -> Attended:
        count, features = key.shape[2:]
        turned = key.transpose(-1, -2) * features**-0.5
        # Subtracting the first key changes no weight, and makes the scores of equal keys exactly 0,
        # so that their peaks have no rounding errors.
        turned = turned - turned[..., :1]
        scores = query @ turned
        # The choice has no gradient.
        peaks = (
            scores.detach().amax(dim=-1, keepdim=True) - query @ turned.mean(dim=-1, keepdim=True)
        )[..., 0].detach()
        chosen = peaks.topk(self.kept, dim=-1).indices
        weights = (query.gather(2, repeated(chosen, features)) @ turned).softmax(dim=-1)
        attended = self.drop(weights) @ value
        mean = value.sum(dim=2, keepdim=True) / count
        # Mixed precision brings sums and products in different types.
        lazy = mean.to(attended.dtype).expand_as(query)
        mixed = lazy.scatter(2, repeated(chosen, features), attended)
        if not call.explain:
            return Attended(mixed)
        rows = torch.full_like(scores, 1 / count, dtype=weights.dtype)
        rows = rows.scatter(2, repeated(chosen, count), weights)
        return Attended(mixed, Dense(rows, chosen, peaks))
