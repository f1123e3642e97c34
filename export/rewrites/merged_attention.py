"""Softmax attention of narrow tokens, all heads of a window in one product."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from foretell.export.rewrites.biases import bias_of
from foretell.export.rewrites.score_bound import is_bounded
from foretell.models.attention.evidence import Dense
from foretell.models.attention.mechanism import Attended
from foretell.models.attention.softmax import MultiHeadAttention

# Measured in onnxruntime on CPU: with more features or heads, the additional multiplications cost
# more than the fewer products save.
_MOST_FEATURES = 16
_MOST_HEADS = 4


def is_narrow(d_model: int, heads: int) -> bool:
    """Whether `MergedAttention` is the faster form."""
    return d_model <= _MOST_FEATURES and heads <= _MOST_HEADS


class MergedAttention(nn.Module):
    """Multi-head self-attention on `[batch * time, d_model]`, the batch being the slow index.

    Equal, in fewer and larger products, because a head is bilinear in the tokens:

    - A score is `token . (Wq' Wk token)`. With that matrix as the query's, the tokens themselves
      are the keys of every head, so the queries of all heads are rows of one product.
    - The heads mix the tokens themselves, and each head's value and output weights, multiplied,
      are part of one last linear map.
    - The biases and the division after the mixture are as in `TimeFirstAttention`.

    A product has `heads` times as many multiplications, but on a CPU rows of 16 features take no
    longer than those of 4.

    Args:
        plain: The trained layer.
        steps: Steps of a window.
        origin: Module whose outputs the tokens are, if it may bound them.
        embedded: Whether the tokens come directly from the embedding.

    Attributes:
        bounded: Whether the scores are bounded.
        reducible: As in `TimeFirstAttention`.
    """

    def __init__(
        self,
        plain: MultiHeadAttention,
        steps: int,
        origin: nn.Module | None = None,
        *,
        embedded: bool = False,
    ) -> None:
        super().__init__()
        self.reducible = not embedded
        self.steps = steps
        self.heads = plain.heads
        self.residual = plain.residual
        self.bounded = is_bounded(plain, origin)
        features = plain.query.in_features
        query, key, value = (
            layer.weight.detach().double().reshape(plain.heads, -1, features)
            for layer in (plain.query, plain.key, plain.value)
        )
        bias = bias_of(plain.query).reshape(plain.heads, 1, -1)
        scale = query.shape[1] ** -0.5
        out = plain.out.weight.detach().double()
        mixing = out.T.reshape(plain.heads, -1, features)
        value_bias = bias_of(plain.value)
        dtype = plain.query.weight.dtype

        def constant(values: Tensor) -> Tensor:
            return nn.Buffer(values.to(dtype).contiguous())

        # From tokens to the features of each head.
        self.query = constant((key.transpose(1, 2) @ query).flatten(0, 1) * scale)
        self.query_bias = constant((bias @ key).flatten() * scale)
        # From the features of all heads to the output.
        self.out = constant((value.transpose(1, 2) @ mixing).flatten(0, 1).T)
        self.out_bias = constant(plain.out.bias.detach().double() + out @ value_bias)
        self.repeat = constant(torch.eye(plain.heads).repeat_interleave(features, dim=1))

    def forward(
        self,
        tokens: Tensor,
        _: Tensor,
        *,
        inherited: Tensor | None = None,
        explain: bool = False,
    ) -> Attended:
        """Let each token attend to the tokens of its window.

        Args:
            tokens: `[batch * time, d_model]`, which are the source as well.
            inherited: Scores of the layer before.
            explain: Return the map as well.

        Returns:
            Output `[batch * time, d_model]`, the map `[batch, heads, time, time]` and, if the layer
            passes them on, scores `[batch, time * heads, time]`.
        """
        steps, features = self.steps, tokens.shape[1]
        windows = tokens.reshape(-1, steps, features)
        query = functional.linear(tokens, self.query, self.query_bias)
        scores = query.reshape(-1, steps * self.heads, features) @ windows.transpose(1, 2)
        if self.residual and inherited is not None:
            scores = scores + inherited
        weights = scores.exp() if self.bounded else scores.softmax(dim=-1)
        mixed = (weights @ windows).reshape(-1, self.heads * features)
        if self.bounded:
            share = 1 / weights.sum(dim=-1, keepdim=True)
            mixed = mixed * (share.reshape(-1, self.heads) @ self.repeat)
            weights = weights * share
        by_head = weights.reshape(-1, steps, self.heads, steps).transpose(1, 2)
        output = functional.linear(mixed, self.out, self.out_bias)
        evidence = Dense(by_head) if explain else None
        return Attended(output, evidence, scores if self.residual else None)
