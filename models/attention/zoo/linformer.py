"""Linformer: keys and values projected along the sequence (Wang et al., 2020, arXiv:2006.04768)."""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from typing_extensions import override

from foretell.bundle.attention import AttentionStage, Axis
from foretell.models.attention.evidence import Dense
from foretell.models.attention.heads import HeadedAttention
from foretell.models.attention.mechanism import MECHANISMS, Attended, Call, MechanismConfig, Site


@MECHANISMS.add
class Linformer(MechanismConfig):
    """A softmax over landmarks, learned mixtures of the keys (section 4, equation 7).

    Attributes:
        landmarks: Number of landmarks; at most the number of keys.
    """

    mechanism: Literal["linformer"] = "linformer"
    landmarks: int = Field(
        default=32, ge=1, description="Mixtures of keys; at most as many as keys."
    )

    @override
    def build(self, site: Site) -> nn.Module:
        return LinformerAttention(site, self.count(site))

    @override
    def describe(self, name: str, site: Site) -> tuple[AttentionStage, ...]:
        key = Axis(of="landmarks", length=self.count(site))
        return (self.stage(name, site._replace(key=key)),)

    def count(self, site: Site) -> int:
        """Number of landmarks."""
        return min(self.landmarks, site.key.length)


class LinformerAttention(HeadedAttention):
    """`softmax(Q (E K)ᵀ / √d) (F V)`; all heads share E and F, which are learned.

    Args:
        site: Place of the attention, whose lengths are fixed.
        landmarks: The rows of E and F.
    """

    def __init__(self, site: Site, landmarks: int) -> None:
        super().__init__(site)
        keys = site.key.length
        # With variance 1 / landmarks, as in the proof that a few landmarks suffice.
        self.of_keys = nn.Parameter(torch.randn(landmarks, keys) * landmarks**-0.5)
        self.of_values = nn.Parameter(torch.randn(landmarks, keys) * landmarks**-0.5)

    @override
    def mix(self, query: Tensor, key: Tensor, value: Tensor, call: Call) -> Attended:
        key, value = self.of_keys @ key, self.of_values @ value
        scores = query @ key.transpose(-1, -2) * query.shape[-1] ** -0.5
        weights = scores.softmax(dim=-1)
        mixed = self.drop(weights) @ value
        return Attended(mixed, Dense(weights) if call.explain else None)
