"""Multi-head softmax attention (Vaswani et al., 2017, arXiv:1706.03762)."""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional
from typing_extensions import override

from foretell.bundle.attention import Form
from foretell.models.attention.evidence import Dense
from foretell.models.attention.mechanism import MECHANISMS, Attended, MechanismConfig, Site


@MECHANISMS.add
class Softmax(MechanismConfig):
    """Scaled dot products of queries and keys through a softmax."""

    mechanism: Literal["softmax"] = "softmax"
    form: ClassVar[Form] = "dense"
    has_causal: ClassVar[bool] = True

    @override
    def build(self, site: Site) -> nn.Module:
        return MultiHeadAttention(
            site.d_model, site.heads, dropout=site.dropout, causal=site.causal
        )


@MECHANISMS.add
class ResidualSoftmax(MechanismConfig):
    """The same, added to the scores of the layer before (He et al., 2021, arXiv:2012.11747)."""

    mechanism: Literal["residual-softmax"] = "residual-softmax"
    form: ClassVar[Form] = "dense"
    has_causal: ClassVar[bool] = True

    @override
    def check(self, site: Site) -> None:
        super().check(site)
        if not site.chained:
            raise ValueError("attention: residual-softmax is for layers of an encoder alone")

    @override
    def build(self, site: Site) -> nn.Module:
        return MultiHeadAttention(
            site.d_model, site.heads, dropout=site.dropout, causal=site.causal, residual=True
        )


class MultiHeadAttention(nn.Module):
    """Scaled dot-product attention over `heads` slices of the features.

    Args:
        d_model: Features of a token.
        heads: Number of heads; it divides d_model.
        dropout: Probability of dropping an attention weight in training.
        causal: Forbid attention to later positions.
        residual: Add the scores inherited from the layer before, and hand the sum on.
    """

    def __init__(
        self,
        d_model: int,
        heads: int,
        *,
        dropout: float = 0.0,
        causal: bool = False,
        residual: bool = False,
    ) -> None:
        super().__init__()
        self.heads = heads
        self.causal = causal
        self.residual = residual
        self.dropout = dropout
        self.query = nn.Linear(d_model, d_model)
        self.key = nn.Linear(d_model, d_model)
        self.value = nn.Linear(d_model, d_model)
        self.out = nn.Linear(d_model, d_model)

    def forward(
        self,
        tokens: Tensor,
        source: Tensor,
        *,
        inherited: Tensor | None = None,
        explain: bool = False,
    ) -> Attended:
        """Let each token attend to the source.

        Args:
            tokens: `[batch, query, d_model]`.
            source: `[batch, key, d_model]`.
            inherited: `[batch, heads, query, key]`, scores of the layer before; read by a residual
                attention alone.
            explain: Return the attention weights as well.
        """
        query = self._split(self.query(tokens))
        key = self._split(self.key(source))
        value = self._split(self.value(source))
        dropout = self.dropout if self.training else 0.0
        if not (explain or self.residual):
            mixed = functional.scaled_dot_product_attention(
                query, key, value, dropout_p=dropout, is_causal=self.causal
            )
            return Attended(self._merge(mixed))
        scores = query @ key.transpose(-1, -2) * query.shape[-1] ** -0.5
        if self.residual and inherited is not None:
            scores = scores + inherited
        masked = scores
        if self.causal:
            later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
            masked = scores.masked_fill(later, float("-inf"))
        weights = masked.softmax(dim=-1)
        mixed = functional.dropout(weights, dropout) @ value
        handed_on = scores if self.residual else None
        return Attended(self._merge(mixed), Dense(weights) if explain else None, handed_on)

    def _split(self, features: Tensor) -> Tensor:
        """`[batch, time, d_model]` to `[batch, heads, time, d_model / heads]`."""
        return features.reshape(*features.shape[:-1], self.heads, -1).transpose(1, 2)

    def _merge(self, heads: Tensor) -> Tensor:
        merged: Tensor = self.out(heads.transpose(1, 2).flatten(-2))
        return merged
