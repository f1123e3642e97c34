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
    """

    query: Tensor
    key: Tensor


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
            summed = (_causal if self.causal else _mixed)(
                *found, functional.pad(value, (0, 1), value=1.0)
            )
            mixed = summed[..., :-1] / self._bounded(summed[..., -1:])
            return Attended(mixed.to(dtype), Dense(self._map(found)) if explain else None)

    def _map(self, found: Features) -> Tensor:
        weights = found.query @ found.key.transpose(-1, -2)
        if self.causal:
            weights = weights.tril()
        return weights / self._bounded(weights.sum(dim=-1, keepdim=True))

    def _bounded(self, total: Tensor) -> Tensor:
        return total if self.smallest is None else total.clamp(min=self.smallest)


def _mixed(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    return query @ (key.transpose(-1, -2) @ value)


def _causal(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """The same of what is not later: chunks by themselves, and the sums of those before each."""
    heads, steps = query.shape[1:3]
    count = -(-steps // CHUNK)
    size = -(-steps // count)
    query, key, value = (
        functional.pad(part, (0, 0, 0, count * size - steps)).reshape(
            -1, heads, count, size, part.shape[-1]
        )
        for part in (query, key, value)
    )
    mixed = (query @ key.transpose(-1, -2)).tril() @ value
    if count > 1:
        sums = (key.transpose(-1, -2) @ value)[:, :, :-1].cumsum(dim=2)
        mixed = mixed + query @ functional.pad(sums, (0, 0, 0, 0, 1, 0))
    return mixed.reshape(-1, heads, count * size, value.shape[-1])[:, :, :steps]
