"""Performer: positive random features whose products are near a softmax (FAVOR+)."""

from __future__ import annotations

from math import ceil, log
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from typing_extensions import override

from foretell.models.attention.features import FeatureAttention, Features, Projections
from foretell.models.attention.mechanism import MECHANISMS, MechanismConfig, Site
from foretell.models.attention.operators import maximum

# Features of queries are no less, of which the largest is 1: no sum of weights is 0.
SMALLEST = 1e-20


@MECHANISMS.add
class PerformerConfig(MechanismConfig):
    """Weights are products of random exponentials, near a softmax: linear in the length.

    Attributes:
        features: Random directions, each of which makes a feature; d ln d of d if None.
        redraw: After how many steps of training the directions are drawn anew.
    """

    mechanism: Literal["performer"] = "performer"
    features: Projections = None
    redraw: int | None = Field(
        default=None, ge=1, description="Steps of training after which directions are drawn anew."
    )

    has_causal: ClassVar[bool] = True

    @override
    def build(self, site: Site) -> nn.Module:
        return Performer(**site.layout, features=self.features, redraw=self.redraw)


class Performer(FeatureAttention):
    """Choromanski et al., 2020, arXiv:2009.14794, lemma 1 and section 2.4.

    What all features of a query have in common, and all of the keys, cancels out. So of queries the
    largest exponent is subtracted; of keys each one's own, which its weight puts back.

    Args:
        features: Random directions; d ln d in heads of d features if None, and no fewer than d.
        redraw: After how many calls in training these are drawn anew; never if None.
        layout: See `HeadedAttention`.

    Attributes:
        projection: `[width, features]`, of all heads.
        calls: How many there have been in training.
    """

    def __init__(
        self,
        *,
        features: int | None = None,
        redraw: int | None = None,
        **layout: Any,  # noqa: ANN401 - what the base takes
    ) -> None:
        super().__init__(**layout)
        self.redraw = redraw
        width = self.query.out_features // self.heads
        count = features or max(width, ceil(width * log(width)))
        self.projection: Tensor = nn.Buffer(orthogonal(width, count))
        self.calls: Tensor = nn.Buffer(torch.zeros((), dtype=torch.int64))

    @override
    def features(self, query: Tensor, key: Tensor) -> Features:
        if self.training and self.redraw is not None:
            self.calls = self.calls + 1
            if self.calls % self.redraw == 0:
                # What earlier calls keep for their gradients stays as it is.
                self.projection = orthogonal(*self.projection.shape).to(self.projection)
        query, key = (part * part.shape[-1] ** -0.25 for part in (query, key))
        exponents = query @ self.projection
        # At least, not added: an exporter takes so small an addend for none.
        query = (exponents - maximum(exponents)).exp().clamp(min=SMALLEST)
        exponents = key @ self.projection
        largest = maximum(exponents)
        norms = (key * key).sum(dim=-1, keepdim=True) / 2
        return Features(query, (exponents - largest).exp(), largest - norms)


def orthogonal(width: int, count: int) -> Tensor:
    """Directions `[width, count]`, orthogonal by blocks, of lengths as normal ones have."""
    squares = [torch.linalg.qr(torch.randn(width, width)) for _ in range(-(-count // width))]
    # With these signs all directions are equally likely.
    directions = torch.cat([q * r.diagonal().sign() for q, r in squares], dim=1)[:, :count]
    scaled: Tensor = directions * torch.randn(width, count).square().sum(dim=0).sqrt()
    return scaled
