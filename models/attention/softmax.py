"""Multi-head softmax attention (Vaswani et al., 2017, arXiv:1706.03762)."""

from __future__ import annotations

from typing import ClassVar, Literal

from torch import Tensor, nn
from torch.nn import functional
from typing_extensions import override

from foretell.models.attention.evidence import Dense
from foretell.models.attention.heads import BiasedConfig, HeadedAttention
from foretell.models.attention.mechanism import MECHANISMS, Attended, Call, Site


@MECHANISMS.add
class Softmax(BiasedConfig):
    """Scaled dot products of queries and keys through a softmax."""

    mechanism: Literal["softmax"] = "softmax"
    has_causal: ClassVar[bool] = True
    has_cache: ClassVar[bool] = True

    @override
    def build(self, site: Site) -> nn.Module:
        return MultiHeadAttention(site, self.biases)


@MECHANISMS.add
class ResidualSoftmax(BiasedConfig):
    """Softmax of scores plus those of the layer before (He et al., 2021, arXiv:2012.11747)."""

    mechanism: Literal["residual-softmax"] = "residual-softmax"
    has_causal: ClassVar[bool] = True
    hands_on: ClassVar[bool] = True

    @override
    def build(self, site: Site) -> nn.Module:
        return MultiHeadAttention(site, self.biases, residual=True)


class MultiHeadAttention(HeadedAttention):
    """Scaled dot-product attention over `heads` slices of the features.

    Args:
        site: Place of the attention.
        biases: Whether the projections to queries, keys and values have biases.
        residual: Add the scores inherited from the layer before, `[batch, heads, query, key]`, and
            pass the sum on.

    Attributes:
        is_by_row: Whether each row of a batch is computed from that row alone.
    """

    is_by_row = True

    def __init__(
        self,
        site: Site,
        biases: tuple[bool, bool, bool] = (True, True, True),
        *,
        residual: bool = False,
    ) -> None:
        super().__init__(site, biases)
        self.residual = residual

    @override
    def mix(self, query: Tensor, key: Tensor, value: Tensor, call: Call) -> Attended:
        queries, keys = query.shape[-2], key.shape[-2]
        if not (call.explain or self.residual or (self.causal and queries != keys)):
            dropout = self.dropout if self.training else 0.0
            mixed = functional.scaled_dot_product_attention(
                query, key, value, dropout_p=dropout, is_causal=self.causal
            )
            return Attended(mixed)
        scores = query @ key.transpose(-1, -2) * query.shape[-1] ** -0.5
        if self.residual and call.inherited is not None:
            scores = scores + call.inherited
        masked = scores
        if self.causal:
            # Queries and keys end together: keys before the first query come from a cache.
            later = scores.new_full((queries, keys), float("-inf")).triu(keys - queries + 1)
            masked = scores + later
        weights = masked.softmax(dim=-1)
        mixed = self.drop(weights) @ value
        handed_on = scores if self.residual else None
        return Attended(mixed, Dense(weights) if call.explain else None, handed_on)
