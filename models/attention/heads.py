"""Shared parts of mechanisms whose heads mix values independently."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from pydantic import Field
from torch import Tensor, nn

from foretell.models.attention.mechanism import Attended, Call, MechanismConfig, Site
from foretell.models.layers.dropout import drop


class BiasedConfig(MechanismConfig):
    """A mechanism of a `HeadedAttention` whose projections may lack biases.

    Attributes:
        query_bias: Whether the projection to queries has a bias.
        key_bias: Whether the projection to keys has a bias.
        value_bias: Whether the projection to values has a bias.
    """

    query_bias: bool = Field(default=True, description="Whether queries have a bias.")
    key_bias: bool = Field(default=True, description="Whether keys have a bias.")
    value_bias: bool = Field(default=True, description="Whether values have a bias.")

    @property
    def biases(self) -> tuple[bool, bool, bool]:
        """Whether the projections to queries, keys and values have biases."""
        return self.query_bias, self.key_bias, self.value_bias


def positions(site: Site) -> tuple[Tensor, Tensor]:
    """Positions of queries and keys on a common clock, in strides of the key.

    Returns:
        `[query]` and `[key]`, float64.
    """
    unit = site.key.stride
    query, key = (
        (axis.start + axis.stride * torch.arange(axis.length, dtype=torch.float64)) / unit
        for axis in (site.query, site.key)
    )
    return query, key


class Heads(nn.Module, ABC):
    """Features of tokens in heads, and back.

    Args:
        heads: Number of heads.
        dropout: Probability of dropping an attention weight in training.

    Attributes:
        out: Projects the mixtures of heads to features of a token; a subclass makes it.
    """

    out: nn.Linear

    def __init__(self, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.dropout = dropout

    def drop(self, weights: Tensor) -> Tensor:
        """Leave out some weights, in training only."""
        return drop(weights, self.dropout, training=self.training)

    # Lengths are numbers and the batch is what remains: a graph needs no arithmetic of shapes.
    def split(self, features: Tensor) -> Tensor:
        """`[batch, …, time, heads * features]` to `[batch, …, heads, time, features]`."""
        *others, time, width = features.shape[1:]
        each = width // self.heads
        if time == 1:
            # Without a transpose, which decoders would have for every step.
            return features.reshape(-1, *others, self.heads, 1, each)
        return features.reshape(-1, *others, time, self.heads, each).transpose(-3, -2)

    def merge(self, mixed: Tensor) -> Tensor:
        """`[batch, …, heads, time, features]` to `[batch, …, time, d_model]`."""
        *others, heads, time, features = mixed.shape[1:]
        tokens = mixed if time == 1 else mixed.transpose(-3, -2)
        merged: Tensor = self.out(tokens.reshape(-1, *others, time, heads * features))
        return merged


class HeadedAttention(Heads):
    """Projects tokens to queries and a source to keys and values, and the mixture of heads back.

    Args:
        site: Place of the attention.
        biases: Whether the projections to queries, keys and values have biases.
    """

    def __init__(self, site: Site, biases: tuple[bool, bool, bool] = (True, True, True)) -> None:
        super().__init__(site.heads, site.dropout)
        width = site.width or site.d_model
        self.causal = site.causal
        self.query, self.key, self.value = (
            nn.Linear(site.d_model, width, bias=bias) for bias in biases
        )
        self.out = nn.Linear(width, site.d_model)

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
            inherited: Scores that the layer before passed on.
            explain: Return evidence as well.
        """
        found = self.keys_and_values(source)
        return self.attend(tokens, *found, inherited=inherited, explain=explain)

    def keys_and_values(self, source: Tensor) -> tuple[Tensor, Tensor]:
        """Project a source `[batch, key, d_model]`, each to `[batch, heads, key, features]`."""
        return self.split(self.key(source)), self.split(self.value(source))

    def attend(
        self,
        tokens: Tensor,
        key: Tensor,
        value: Tensor,
        *,
        inherited: Tensor | None = None,
        explain: bool = False,
    ) -> Attended:
        """Let tokens attend to keys and values that are known already, like `forward`."""
        query = self.split(self.query(tokens))
        mixed = self.mix(query, key, value, Call(inherited, explain))
        return mixed._replace(output=self.merge(mixed.output))

    @abstractmethod
    def mix(self, query: Tensor, key: Tensor, value: Tensor, call: Call) -> Attended:
        """Mix values `[batch, heads, key, features]`.

        Args:
            query: `[batch, heads, query, features]`.
            key: `[batch, heads, key, features]`.
            value: `[batch, heads, key, features]`.
            call: As in `forward`.

        Returns:
            Output `[batch, heads, query, features]`, and evidence and scores as returned by
            `attend`.
        """
