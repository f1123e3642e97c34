"""Memory-compressed attention (Liu et al., 2018, arXiv:1801.10198, section 4.2.3)."""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional
from typing_extensions import override

from foretell.bundle.attention import AttentionStage, Axis
from foretell.models.attention.evidence import Dense
from foretell.models.attention.heads import HeadedAttention
from foretell.models.attention.mechanism import MECHANISMS, Attended, Call, MechanismConfig, Site


@MECHANISMS.add
class Compressed(MechanismConfig):
    """A softmax over blocks of keys; a convolution makes one key of each block.

    A causal query reads the blocks before its own, and itself. Its own key has no column in the
    map, so rows sum to less than 1.

    Attributes:
        compression: Keys in a block; all keys are one block if they are fewer.
    """

    mechanism: Literal["compressed"] = "compressed"
    compression: int = Field(
        default=3, ge=1, description="Number of consecutive keys, or values, that become one."
    )

    has_causal: ClassVar[bool] = True

    @override
    def build(self, site: Site) -> nn.Module:
        return CompressedAttention(site, self._block(site))

    @override
    def describe(self, name: str, site: Site) -> tuple[AttentionStage, ...]:
        blocks = -(-site.key.length // self._block(site))
        return (self.stage(name, site._replace(key=Axis(of="landmarks", length=blocks))),)

    def _block(self, site: Site) -> int:
        return min(self.compression, site.key.length)


class CompressedAttention(HeadedAttention):
    """Attention to a convolution of projected keys and values, its kernel as long as its stride.

    Args:
        site: Place of the attention.
        compression: Kernel and stride; zeros fill the last block.
    """

    def __init__(self, site: Site, compression: int) -> None:
        super().__init__(site)
        self.compression = compression
        length = site.query.length
        width = self.key.out_features
        # Maps from the features of all heads, one step after the other.
        self.of_keys = nn.Linear(compression * width, width)
        self.of_values = nn.Linear(compression * width, width)
        own = torch.arange(length) // compression
        # Blocks that do not come before the query's own.
        unread = torch.arange(-(-length // compression)) >= own[:, None]
        mask = torch.zeros(unread.shape).masked_fill(unread, float("-inf"))
        self.mask = nn.Buffer(mask, persistent=False) if self.causal else None

    @override
    def mix(self, query: Tensor, key: Tensor, value: Tensor, call: Call) -> Attended:
        query = query * query.shape[-1] ** -0.5
        keys, values = self._blocks(key, self.of_keys), self._blocks(value, self.of_values)
        scores = query @ keys.transpose(-1, -2)
        count = scores.shape[-1]
        if self.mask is not None:
            itself = (query * key).sum(dim=-1, keepdim=True)
            scores = torch.cat([scores + self.mask, itself], dim=-1)
        weights = scores.softmax(dim=-1)
        dropped = self.drop(weights)
        mixed = dropped[..., :count] @ values
        if self.causal:
            mixed = mixed + dropped[..., count:] * value
        return Attended(mixed, Dense(weights[..., :count]) if call.explain else None)

    def _blocks(self, rows: Tensor, convolution: nn.Linear) -> Tensor:
        """`[batch, heads, key, features]` to `[batch, heads, blocks, features]`."""
        heads, length, features = rows.shape[1:]
        blocks = -(-length // self.compression)
        missing = blocks * self.compression - length
        merged = rows.transpose(1, 2).reshape(-1, length, heads * features)
        padded = functional.pad(merged, (0, 0, 0, missing)) if missing else merged
        return self.split(convolution(padded.reshape(-1, blocks, convolution.in_features)))
