"""Efficient attention: a softmax of queries over features, one of keys over positions."""

from __future__ import annotations

from typing import Literal

from torch import Tensor, nn
from typing_extensions import override

from foretell.models.attention.evidence import Dense
from foretell.models.attention.heads import HeadedAttention
from foretell.models.attention.mechanism import MECHANISMS, Attended, Call, MechanismConfig, Site


@MECHANISMS.add
class EfficientConfig(MechanismConfig):
    """Softmax over features of queries, over positions of keys: linear in the length."""

    mechanism: Literal["efficient"] = "efficient"

    @override
    def build(self, site: Site) -> nn.Module:
        return EfficientAttention(site)


class EfficientAttention(HeadedAttention):
    """Shen et al., 2018, arXiv:1812.01243, section 3.2, normalised by softmax.

    Each feature reads all keys by a softmax of its own, and each query mixes what features read. So
    the map is the product of both; its rows sum to 1.
    """

    @override
    def mix(self, query: Tensor, key: Tensor, value: Tensor, call: Call) -> Attended:
        shares, read = query.softmax(dim=-1), key.transpose(-1, -2).softmax(dim=-1)
        evidence = Dense(shares @ read) if call.explain else None
        return Attended(shares @ (read @ value), evidence)
