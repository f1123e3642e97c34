"""Random feature attention: sines and cosines whose products are near a Gaussian kernel."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn
from typing_extensions import override

from foretell.models.attention.features import FeatureAttention, Features, Projections
from foretell.models.attention.mechanism import MECHANISMS, MechanismConfig, Site

# Of fewer directions too many sums of weights are near 0.
FEWEST = 32


@MECHANISMS.add
class RandomFeaturesConfig(MechanismConfig):
    """Weights are products of random sines and cosines, near a softmax: linear in the length.

    Attributes:
        features: Random directions, each of which makes a sine and a cosine.
    """

    mechanism: Literal["random-features"] = "random-features"
    features: Projections = None

    has_causal: ClassVar[bool] = True

    @override
    def build(self, site: Site) -> nn.Module:
        return RandomFeatureAttention(**site.layout, features=self.features)


class RandomFeatureAttention(FeatureAttention):
    """Peng et al., 2021, arXiv:2103.02143, section 3.1, without a gate.

    For queries and keys of length 1 a Gaussian kernel is a softmax, and these features are an
    estimate of it. Weights of few features may be negative: as the published code does, the sum of
    those of a query counts as 0.1 at least, and where it does they don't sum to 1.

    Args:
        features: Random directions; as many as a head is wide if None, and no fewer than 32.
        layout: See `HeadedAttention`.

    Attributes:
        sigma: By what a head multiplies what it projects: how narrow the kernel is along each
            feature.
        projection: `[heads, width, features]`.
    """

    smallest: ClassVar[float | None] = 0.1

    def __init__(
        self,
        *,
        features: int | None = None,
        **layout: Any,  # noqa: ANN401 - what the base takes
    ) -> None:
        super().__init__(**layout)
        width = self.query.out_features // self.heads
        directions = torch.randn(self.heads, width, features or max(width, FEWEST))
        self.sigma = nn.Parameter(torch.ones(self.heads, width, 1))
        self.projection = nn.Buffer(directions)

    @override
    def features(self, query: Tensor, key: Tensor) -> Features:
        query, key = self._waves(query), self._waves(key)
        return Features(query / self.projection.shape[-1], key)

    def _waves(self, part: Tensor) -> Tensor:
        length = ((part * part).sum(dim=-1, keepdim=True) + 1e-20).sqrt()
        angles = (part / length) @ (self.sigma * self.projection)
        return torch.cat([angles.sin(), angles.cos()], dim=-1)
