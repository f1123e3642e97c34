"""What mechanisms share whose weights are products of features: linear in the length."""

from __future__ import annotations

from abc import abstractmethod
from contextlib import nullcontext
from typing import Annotated, ClassVar, NamedTuple

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional
from typing_extensions import override

from foretell.models.attention.evidence import Dense
from foretell.models.attention.heads import HeadedAttention
from foretell.models.attention.mechanism import Attended
from foretell.models.attention.operators import maximum

# At most so many steps are compared with each other; earlier ones are read by their sum.
CHUNK = 32

Projections = Annotated[
    int | None,
    Field(
        ge=1,
        description="Random directions that features of a head are made of; by default as many as "
        "its width asks for.",
    ),
]


class Features(NamedTuple):
    """What weights are products of.

    Attributes:
        query: `[batch, heads, query, features]`.
        key: `[batch, heads, key, features]`.
        scale: `[batch, heads, key, 1]`, the logarithm of what all features of a key are to be
            multiplied by; 0 if None.
    """

    query: Tensor
    key: Tensor
    scale: Tensor | None = None


class FeatureAttention(HeadedAttention):
    """Reads the values by products of features of query and key, divided by the sum of these.

    The products are never all made, but where they are asked for. Half precision is for what is
    before and after: sums over all steps have too many digits for it.

    Attributes:
        smallest: What the sum of the weights of a query at least counts as, where it may be 0.
    """

    smallest: ClassVar[float | None] = None

    @abstractmethod
    def features(self, query: Tensor, key: Tensor) -> Features:
        """Of queries `[batch, heads, query, width]` and keys `[batch, heads, key, width]`."""

    @override
    def mix(
        self, query: Tensor, key: Tensor, value: Tensor, *, inherited: Tensor | None, explain: bool
    ) -> Attended:
        device, dtype = query.device.type, value.dtype
        reduced = torch.is_autocast_enabled(device)
        with torch.autocast(device, enabled=False) if reduced else nullcontext():
            query, key, value = (
                part.float() if part.itemsize < 4 else part for part in (query, key, value)
            )
            found = self.features(query, key)
            # The sum of the weights is what they make of ones.
            value = functional.pad(value, (0, 1), value=1.0)
            mixer = _causal if self.causal else _mixed
            summed = mixer(found.query, found.key, value, found.scale)
            mixed = summed[..., :-1] / self._bounded(summed[..., -1:])
            return Attended(mixed.to(dtype), Dense(self._map(found)) if explain else None)

    def _map(self, found: Features) -> Tensor:
        weights = found.query @ found.key.transpose(-1, -2)
        if self.causal:
            weights = weights.tril()
        if found.scale is not None:
            scale = found.scale.transpose(-1, -2)
            weights = weights * (scale + _later(scale) if self.causal else scale).softmax(dim=-1)
        return weights / self._bounded(weights.sum(dim=-1, keepdim=True))

    def _bounded(self, total: Tensor) -> Tensor:
        return total if self.smallest is None else total.clamp(min=self.smallest)


def _mixed(query: Tensor, key: Tensor, value: Tensor, scale: Tensor | None) -> Tensor:
    """`[batch, heads, query, width]`, up to a factor for each query, like the next."""
    key = key.transpose(-1, -2)
    if scale is not None:
        key = key * scale.transpose(-1, -2).softmax(dim=-1)
    return query @ (key @ value)


def _causal(query: Tensor, key: Tensor, value: Tensor, scale: Tensor | None) -> Tensor:
    """The same of what is not later: chunks by themselves, and the sums of those before each."""
    heads, steps = query.shape[1:3]
    count = -(-steps // CHUNK)
    size = -(-steps // count)

    def chunks(part: Tensor) -> Tensor:
        padded = functional.pad(part, (0, 0, 0, count * size - steps))
        return padded.reshape(-1, heads, count, size, part.shape[-1])

    query, key, value = chunks(query), chunks(key).transpose(-1, -2), chunks(value)
    own = (query @ key).tril()
    if scale is not None:
        mixed = _scaled(query, own, key, value, chunks(scale).transpose(-1, -2))
    else:
        mixed = own @ value
        if count > 1:
            sums = (key @ value)[:, :, :-1].cumsum(dim=2)
            mixed = mixed + query @ functional.pad(sums, (0, 0, 0, 0, 1, 0))
    return mixed.reshape(-1, heads, count * size, value.shape[-1])[:, :, :steps]


def _scaled(query: Tensor, own: Tensor, key: Tensor, value: Tensor, scale: Tensor) -> Tensor:
    """Chunks of keys that have a scale: each sum is relative to the largest in it.

    A maximum of all keys would be one of later keys. So each query has a softmax of the scales in
    its chunk up to its own, and of the largest scale before.

    Args:
        query: `[batch, heads, chunks, size, features]`.
        own: `[batch, heads, chunks, size, size]`, products within a chunk.
        key: `[batch, heads, chunks, features, size]`.
        value: `[batch, heads, chunks, size, width]`.
        scale: `[batch, heads, chunks, 1, size]`.
    """
    heads, count, _, width = value.shape[1:]
    later = _later(scale)
    if count == 1:
        return (own * (scale + later).softmax(dim=-1)) @ value
    # Whatever is subtracted is added elsewhere: no gradient comes of it.
    most = maximum(scale)
    sums = (key * (scale - most).exp()) @ value
    most = most.reshape(-1, heads, 1, count)
    earlier = most + _later(most, itself=True)
    before = maximum(earlier)
    read = (earlier - before).exp() @ sums.reshape(-1, heads, count, key.shape[-2] * width)
    read = read.reshape(-1, heads, count, key.shape[-2], width)
    scales = torch.cat([scale, before[..., None]], dim=-1) + functional.pad(later, (0, 1))
    weights = scales.softmax(dim=-1)
    return (own * weights[..., :-1]) @ value + weights[..., -1:] * (query @ read)


def _later(scale: Tensor, *, itself: bool = False) -> Tensor:
    """What to add to `[…, 1, key]`, to leave out keys after each query, or itself too."""
    steps = scale.shape[-1]
    # Finite: for the first query there may be none.
    return scale.new_full((steps, steps), -1e30).triu(0 if itself else 1)
