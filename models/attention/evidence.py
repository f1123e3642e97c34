"""Evidence of attention, by form: fields are the outputs of `foretell.bundle.attention`."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeVar

from torch import Tensor


class Dense(NamedTuple):
    """A map.

    Attributes:
        weights: `[batch, heads, query, key]`, or `[batch, channels, heads, query, key]` where each
            channel attends by itself.
        chosen: Indices that the mechanism chose, if it chooses, `[batch, …, kept]` int64.
        scores: Scores of the choice, `[batch, …, candidates]`.
    """

    weights: Tensor
    chosen: Tensor | None = None
    scores: Tensor | None = None


class Circulant(NamedTuple):
    """A map by lags, the same for all heads.

    Attributes:
        lags: `[batch, k]` int64, by descending correlation; position t reads position t + lag.
        lag_weights: `[batch, k]`, summing to 1.
        correlation: `[batch, lags]`, mean over heads and features of the correlation per lag.
        extremes: `[batch, k + 2]`, the largest correlations, which were kept, in descending order,
            the first that was not, and the smallest. None if all are kept, and except in the served
            form, which reports how close the choice was.
    """

    lags: Tensor
    lag_weights: Tensor
    correlation: Tensor
    extremes: Tensor | None = None


class Sparse(NamedTuple):
    """A map of few keys.

    Attributes:
        keys: `[batch, heads, query, k]` int64, or with channels as above; -1 for no key.
        weights: Weights of the keys, in the same shape.
        chosen: As in `Dense`.
        scores: As in `Dense`.
    """

    keys: Tensor
    weights: Tensor
    chosen: Tensor | None = None
    scores: Tensor | None = None


Single = Dense | Circulant | Sparse


class Parts(NamedTuple):
    """Evidence of a mechanism made of several.

    Attributes:
        by_name: Evidence of each mechanism. The name of its stage is that of the whole, a dot and
            this name.
    """

    by_name: dict[str, Single | None]


Evidence = Single | Parts


E = TypeVar("E", bound=Evidence)


def each(evidence: E, change: Callable[[Tensor], Tensor]) -> E:
    """Evidence with all tensors changed, such as to other axes."""
    if isinstance(evidence, Parts):
        parts = {name: one and each(one, change) for name, one in evidence.by_name.items()}
        return type(evidence)(parts)
    tensors = {name: one for name, one in evidence._asdict().items() if one is not None}
    return type(evidence)(**{name: change(one) for name, one in tensors.items()})


def by_channel(evidence: Evidence | None, channels: int) -> Evidence | None:
    """Evidence of `[batch * channels, …]` as one of `[batch, channels, …]`."""
    if evidence is None:
        return None
    return each(evidence, lambda part: part.reshape(-1, channels, *part.shape[1:]))
