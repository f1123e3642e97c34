"""Correlation and mixture over time, which have two forms."""

from __future__ import annotations

from abc import ABC, abstractmethod

from torch import Tensor, nn


class Correlator(nn.Module, ABC):
    """Correlates series and mixes their lags; linear maps of the features may come in between.

    `represent` maps time only, so `linear(represent(series))` is `represent(linear(series))`.

    Args:
        length: Steps of the query, of the correlation and of the mixture.
    """

    def __init__(self, length: int) -> None:
        super().__init__()
        self.length = length

    @abstractmethod
    def rows(self, steps: int) -> int:
        """Rows of features in the representation of a series with this number of steps."""

    @abstractmethod
    def effort(self, steps: int) -> int:
        """Multiplications for each feature to represent this number of steps."""

    @abstractmethod
    def represent(self, series: Tensor) -> Tensor:
        """Represent `[batch, time, d_model]`, cut or padded with zeros to the length."""

    @abstractmethod
    def correlate(self, query: Tensor, key: Tensor) -> Tensor:
        """Sum over time and features of `query[t + lag] * key[t]`, circular.

        Args:
            query: A representation of a series whose mean over time is zero.
            key: A representation.

        Returns:
            `[batch, length]`, by lag.
        """

    @abstractmethod
    def mix(self, by_lag: Tensor, value: Tensor) -> Tensor:
        """Sum over lags of `by_lag[lag] * value[t + lag]`, circular.

        Args:
            by_lag: `[batch, length]`.
            value: A representation.

        Returns:
            `[batch, length, d_model]`, as a series.
        """
