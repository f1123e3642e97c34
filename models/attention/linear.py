"""Linear attention: products of positive features in the place of a softmax."""

from __future__ import annotations

from typing import ClassVar, Literal

from torch import Tensor, nn
from typing_extensions import override

from foretell.models.attention.features import FeatureAttention, Features
from foretell.models.attention.mechanism import MECHANISMS, MechanismConfig, Site

# Smaller features count as this power of e: where all were 0, so would be the sum of the weights.
FLOOR = -20.0


@MECHANISMS.add
class LinearConfig(MechanismConfig):
    """Weights are products of positive features, elu + 1: linear in the length."""

    mechanism: Literal["linear"] = "linear"
    has_causal: ClassVar[bool] = True

    @override
    def build(self, site: Site) -> nn.Module:
        return LinearAttention(**site.layout)


class LinearAttention(FeatureAttention):
    """Katharopoulos et al., 2020, arXiv:2006.16236: equation 5, 9 if causal, features as in 7."""

    @override
    def features(self, query: Tensor, key: Tensor) -> Features:
        return Features(_positive(query), _positive(key))


def _positive(part: Tensor) -> Tensor:
    """The elu and 1, without the rounding of that sum."""
    return part.clamp(FLOOR, 0.0).exp() + part.relu()
