"""Errors of the series that changed last, from which offsets are learned."""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from foretell.service.engine.learned import Key

# Ids of a version and of a series.
Pair = tuple[int, int]


class Errors(NamedTuple):
    """Errors of the latest origins of a series.

    Attributes:
        errors: `[origins, steps, channels]`, in units of the scale; NaN where unknown.
        positions: `[origins]`, in steps on one time axis of all series.
        pair: Ids of the version and of the series.
    """

    errors: NDArray[np.float64]
    positions: NDArray[np.int64]
    pair: Pair

    @property
    def bytes(self) -> int:
        return self.errors.nbytes + self.positions.nbytes

    def equals(self, other: Errors) -> bool:
        return np.array_equal(self.positions, other.positions) and np.array_equal(
            self.errors, other.errors, equal_nan=True
        )


class RecentErrors:
    """Errors by the key of their series; those that changed longest ago make room for others.

    Args:
        most_bytes: Most bytes of all errors; those of one series are always kept.
        most_series: Most series of a version and a namespace.
    """

    def __init__(self, most_bytes: int, most_series: int) -> None:
        self._most_bytes, self._most_series = most_bytes, most_series
        self._errors: OrderedDict[Key, Errors] = OrderedDict()
        # These keys by version and namespace, in their order.
        self._keys: defaultdict[Key, OrderedDict[Key, None]] = defaultdict(OrderedDict)
        self._bytes = 0

    def get(self, key: Key) -> Errors | None:
        return self._errors.get(key)

    def put(self, key: Key, errors: Errors) -> None:
        self.remove(key)
        self._errors[key] = errors
        self._bytes += errors.bytes
        keys = self._keys[key.of_namespace]
        keys[key] = None
        if len(keys) > self._most_series:
            self.remove(next(iter(keys)))
        while self._bytes > self._most_bytes and len(self._errors) > 1:
            self.remove(next(iter(self._errors)))

    def remove(self, key: Key) -> None:
        if (errors := self._errors.pop(key, None)) is None:
            return
        self._bytes -= errors.bytes
        keys = self._keys[key.of_namespace]
        del keys[key]
        if not keys:
            del self._keys[key.of_namespace]

    def __iter__(self) -> Iterator[Key]:
        """The keys; entries may be removed meanwhile."""
        return iter([*self._errors])

    def of_namespace(self, key: Key) -> dict[Key, Errors]:
        """The errors of the version and the namespace of a key, those that changed last at last."""
        return {each: self._errors[each] for each in self._keys.get(key.of_namespace, ())}
