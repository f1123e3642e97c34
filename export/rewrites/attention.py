"""Softmax attention with the time axis first."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from foretell.export.rewrites.biases import bias_of
from foretell.export.rewrites.lookup import Call, rewrites
from foretell.export.rewrites.score_bound import is_bounded
from foretell.models.attention.evidence import Dense
from foretell.models.attention.mechanism import Attended
from foretell.models.attention.softmax import MultiHeadAttention


class TimeFirstAttention(nn.Module):
    """Multi-head attention on `[time * batch, d_model]`, time being the slow index.

    Equal, with less work:

    - With time first the heads of query, key and value are strided views, which onnxruntime's
      matrix product reads as they are; batch first, each is copied to another order of axes.
      Tokens in two dimensions make each projection one Gemm, bias included.
    - The key's bias adds the same to all scores of a query, which a softmax ignores.
    - As the weights sum to 1, the value's bias is added to the mixture unchanged. Multiplied by the
      output's weight it joins the output's bias.
    - The scale of the scores is part of the query's weight.
    - A softmax subtracts the largest score of each query, so that no exponential overflows, and
      divides each of the exponentials by their sum. Where scores are bounded, none can overflow,
      and the mixture is divided instead, which has fewer columns.

    Args:
        plain: The trained layer.
        steps: Number of queries and of keys.
        origin: Module whose outputs tokens and source are, if it may bound them.
        embedded: Whether the tokens come directly from the embedding.

    Attributes:
        bounded: Whether the scores are bounded.
        reducible: Whether half precision may be used; not if tokens have the offset of the data.
    """

    def __init__(
        self,
        plain: MultiHeadAttention,
        steps: tuple[int, int],
        origin: nn.Module | None = None,
        *,
        embedded: bool = False,
    ) -> None:
        super().__init__()
        self.reducible = not embedded
        self.bounded = is_bounded(plain, origin)
        self.heads = plain.heads
        self.residual = plain.residual
        self.steps = steps
        self.mask = nn.Buffer(causal_mask(*steps)) if plain.causal else None
        features = plain.query.out_features
        scale = (features // plain.heads) ** -0.5
        dtype = plain.query.weight.dtype
        out = plain.out.weight.detach().double()
        value_bias = bias_of(plain.value)

        def constant(values: Tensor) -> Tensor:
            return nn.Buffer(values.to(dtype))

        self.query = constant(plain.query.weight.detach().double() * scale)
        self.query_bias = constant(bias_of(plain.query) * scale)
        self.key = constant(plain.key.weight.detach())
        self.value = constant(plain.value.weight.detach())
        self.out = constant(out)
        self.out_bias = constant(plain.out.bias.detach().double() + out @ value_bias)
        # A product with zeros and ones repeats a number for the features of each head.
        self.repeat = constant(torch.eye(plain.heads).repeat_interleave(features // plain.heads, 1))

    def forward(
        self,
        tokens: Tensor,
        source: Tensor,
        *,
        inherited: Tensor | None = None,
        explain: bool = False,
        last: int | None = None,
    ) -> Attended:
        """Let each token attend to the source.

        Args:
            tokens: `[query * batch, d_model]`.
            source: `[key * batch, d_model]`.
            inherited: `[batch, heads, query, key]`, scores of the layer before.
            explain: Return the map as well.
            last: Number of last queries that the tokens are, if not all.

        Returns:
            Output `[query * batch, d_model]`, the map and, if the layer passes them on, scores.
        """
        queries, keys = last or self.steps[0], self.steps[1]
        query, key = self.project(tokens, source)
        value = functional.linear(source, self.value)
        split = (-1, self.heads, query.shape[1] // self.heads)
        scores = query.reshape(queries, *split).permute(1, 2, 0, 3) @ key.reshape(
            keys, *split
        ).permute(1, 2, 3, 0)
        if self.residual and inherited is not None:
            scores = scores + inherited
        masked = scores if self.mask is None else scores + self.mask[-queries:]
        weights = masked.exp() if self.bounded else masked.softmax(dim=-1)
        mixed = weights @ value.reshape(keys, *split).permute(1, 2, 0, 3)
        merged = mixed.permute(2, 0, 1, 3).reshape(-1, query.shape[1])
        if self.bounded:
            share = 1 / weights.sum(dim=-1, keepdim=True)
            merged = merged * (share.permute(2, 0, 1, 3).reshape(-1, self.heads) @ self.repeat)
            weights = weights * share
        output = functional.linear(merged, self.out, self.out_bias)
        evidence = Dense(weights) if explain else None
        return Attended(output, evidence, scores if self.residual else None)

    def project(self, tokens: Tensor, source: Tensor) -> tuple[Tensor, Tensor]:
        """Queries `[query * batch, width]` and keys `[key * batch, width]`."""
        query = functional.linear(tokens, self.query, self.query_bias)
        return query, functional.linear(source, self.key)


class ServedAttention(nn.Module):
    """`TimeFirstAttention`, called like the plain layer.

    onnxruntime has no kernel on CUDA for the operator that torch's own attention becomes.

    Args:
        attention: Faster form of the trained layer.
    """

    def __init__(self, attention: TimeFirstAttention) -> None:
        super().__init__()
        self.attention = attention

    def forward(self, tokens: Tensor, source: Tensor, **options: Any) -> Attended:  # noqa: ANN401
        """Let tokens `[batch, query, d_model]` attend to `[batch, key, d_model]`."""
        flat = (part.transpose(0, 1).flatten(0, 1) for part in (tokens, source))
        found: Attended = self.attention(*flat, **options)
        output = found.output.reshape(tokens.shape[1], -1, found.output.shape[1])
        return found._replace(output=output.transpose(0, 1))


@rewrites(MultiHeadAttention)
def rewrite_attention(plain: MultiHeadAttention, call: Call) -> nn.Module:
    """See `ServedAttention`."""
    tokens, source = call.shapes[:2]
    return ServedAttention(TimeFirstAttention(plain, (tokens[1], source[1]), embedded=True))


def causal_mask(queries: int, keys: int) -> Tensor:
    """`[queries, keys]`: minus infinity where a key is later than its query; both end together."""
    return torch.full((queries, keys), float("-inf")).triu(keys - queries + 1)
