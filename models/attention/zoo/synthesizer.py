"""Synthesizers: weights without queries and keys (Tay et al., 2020, arXiv:2005.00743)."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from typing_extensions import override

from foretell.models.attention.evidence import Dense
from foretell.models.attention.heads import Heads
from foretell.models.attention.mechanism import MECHANISMS, Attended, MechanismConfig, Site


@MECHANISMS.add
class RandomSynthesizerConfig(MechanismConfig):
    """Weights are parameters, the same for all windows (section 3.1, "Random" and "Factorized").

    Attributes:
        rank: Rank of the scores, as a product of two tables; None for one whole table.
    """

    mechanism: Literal["synthesizer-random"] = "synthesizer-random"
    rank: int | None = Field(
        default=None, ge=1, description="Rank of a table of scores; a whole table if not given."
    )

    has_causal: ClassVar[bool] = True

    @override
    def build(self, site: Site) -> nn.Module:
        return RandomSynthesizer(site, self.rank)


@MECHANISMS.add
class DenseSynthesizerConfig(MechanismConfig):
    """A network makes the scores of all keys from the query's token alone (section 3.1, "Dense").

    Attributes:
        factorised: Make the scores as products of two shorter lists, for a smaller network.
    """

    mechanism: Literal["synthesizer-dense"] = "synthesizer-dense"
    factorised: bool = Field(
        default=False, description="Make the scores of keys as products of two shorter lists."
    )

    has_causal: ClassVar[bool] = True

    @override
    def build(self, site: Site) -> nn.Module:
        return DenseSynthesizer(site, factorised=self.factorised)


class Synthesizer(Heads):
    """Mixes the heads' values by a softmax of scores that do not depend on keys.

    Args:
        site: Place of the attention, whose lengths are fixed.
    """

    def __init__(self, site: Site) -> None:
        super().__init__(site.heads, site.dropout)
        width = site.heads * site.head_width
        self.value = nn.Linear(site.d_model, width)
        self.out = nn.Linear(width, site.d_model)
        lengths = site.query.length, site.key.length
        # A row depends on at most one token, so leaving out later keys makes it causal.
        later = torch.full(lengths, -math.inf).triu(1) if site.causal else None
        self.later = None if later is None else nn.Buffer(later, persistent=False)

    def forward(
        self,
        tokens: Tensor,
        source: Tensor,
        *,
        inherited: Tensor | None = None,  # noqa: ARG002 - for those that add to it
        explain: bool = False,
    ) -> Attended:
        """Let `tokens` `[batch, query, d_model]` read `source` `[batch, key, d_model]`."""
        value = self.split(self.value(source))
        scores = self.score(tokens)
        if self.later is not None:
            scores = scores + self.later
        weights = scores.softmax(dim=-1)
        output = self.merge(self.drop(weights) @ value)
        if not explain:
            return Attended(output)
        return Attended(output, Dense(weights.expand(value.shape[0], -1, -1, -1)))

    @abstractmethod
    def score(self, tokens: Tensor) -> Tensor:
        """`[batch, query, d_model]` to `[batch, heads, query, key]`, or without the batch."""


class RandomSynthesizer(Synthesizer):
    """Scores are a table `[heads, query, key]`, or `left @ right` of a rank.

    Args:
        site: As in `Synthesizer`.
        rank: None for the whole table.
    """

    def __init__(self, site: Site, rank: int | None) -> None:
        super().__init__(site)
        query, key = site.query.length, site.key.length
        # Scores begin with a variance of 1 either way.
        scale = 1.0 if rank is None else rank**-0.25
        self.left = nn.Parameter(torch.randn(site.heads, query, rank or key) * scale)
        self.right = None
        if rank is not None:
            self.right = nn.Parameter(torch.randn(site.heads, rank, key) * scale)

    @override
    def score(self, tokens: Tensor) -> Tensor:
        return self.left if self.right is None else self.left @ self.right


class DenseSynthesizer(Synthesizer):
    """Scores are `relu(token @ hidden) @ net`, for each head by itself (equation 2).

    Factorised, `net` gives two lists a and b, and key `i * len(b) + j` scores `a[i] * b[j]`.

    Args:
        site: As in `Synthesizer`.
        factorised: Whether `net` gives two lists.
    """

    def __init__(self, site: Site, *, factorised: bool) -> None:
        super().__init__(site)
        self.keys = site.key.length
        # The shortest two lists whose products suffice for all keys.
        first = math.ceil(math.sqrt(self.keys))
        self.lists = (first, math.ceil(self.keys / first)) if factorised else (self.keys,)
        features, scores = site.head_width, sum(self.lists)
        self.hidden = nn.Linear(site.d_model, site.heads * features)
        bound = features**-0.5
        self.net = nn.Parameter(torch.empty(site.heads, features, scores).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(site.heads, 1, scores).uniform_(-bound, bound))

    @override
    def score(self, tokens: Tensor) -> Tensor:
        scores = self.split(self.hidden(tokens).relu()) @ self.net + self.bias
        if len(self.lists) == 1:
            return scores
        first, second = scores[..., : self.lists[0], None], scores[..., None, self.lists[0] :]
        products = (first * second).flatten(-2)
        return products[..., : self.keys]
