"""What an attention looked at, by form: fields are the outputs of `foretell.bundle.attention`."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor


class Dense(NamedTuple):
    """A map.

    Attributes:
        weights: `[batch, heads, query, key]`, or `[batch, channels, heads, query, key]` where each
            channel attends by itself.
    """

    weights: Tensor


class Circulant(NamedTuple):
    """A map by lags, the same for all heads.

    Attributes:
        lags: `[batch, k]` int64, by descending correlation; position t reads position t + lag.
        lag_weights: `[batch, k]`, summing to 1.
        correlation: `[batch, lags]`, mean over heads and features of the correlation per lag.
        extremes: `[batch, k + 2]`, of the correlation the largest that were kept, in descending
            order, the first that was not, and the smallest. None where all are kept, and where
            nobody asks how close the choice was: only the served form tells.
    """

    lags: Tensor
    lag_weights: Tensor
    correlation: Tensor
    extremes: Tensor | None = None


class Sparse(NamedTuple):
    """A map of few keys.

    Attributes:
        keys: `[batch, heads, query, k]` int64, or with channels as above; -1 where there is none.
        weights: The same shape.
    """

    keys: Tensor
    weights: Tensor


Evidence = Dense | Circulant | Sparse
