"""Counts and histograms that add up: those of every door are added to the engine's."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from math import inf, isinf
from typing import NamedTuple, TypeVar

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

_Number = TypeVar("_Number")

# The name of a family and the values of its labels.
Key = tuple[str, ...]
# Counts and histograms with their keys; JSON can say it.
Taken = tuple[list[tuple[Key, float]], list[tuple[Key, list[float]]]]


class Family(NamedTuple):
    """Numbers that differ in their labels alone.

    Attributes:
        help: What they are; hidden from Prometheus if empty.
        labels: Names of their labels.
        bounds: Upper bounds of a histogram's buckets; None of a count, () of one that is but the
            number of its values and their sum.
        falls: Whether a count may also fall.
    """

    help: str
    labels: tuple[str, ...] = ()
    bounds: tuple[float, ...] | None = None
    falls: bool = False


class Counts:
    """Numbers by family and labels; threads may share it.

    Args:
        families: By name.
    """

    def __init__(self, families: Mapping[str, Family]) -> None:
        self._families = families
        self._lock = threading.Lock()
        self._counts: dict[Key, float] = {}
        # The sum of the values, and how many fell into each bucket, the last without a bound.
        self._histograms: dict[Key, list[float]] = {}

    def add(self, *key: str, amount: float = 1.0) -> None:
        """Count something."""
        with self._lock:
            self._counts[key] = self._counts.get(key, 0.0) + amount

    def observe(self, *values: tuple[Key, float]) -> None:
        """Put values into histograms."""
        with self._lock:
            for key, value in values:
                bounds = self._families[key[0]].bounds or ()
                found = self._histograms.get(key)
                if found is None:
                    found = self._histograms[key] = [0.0] * (len(bounds) + 2)
                found[0] += value
                found[1 + bisect_left(bounds, value)] += 1

    def count(self, *key: str) -> float:
        """What was counted so far."""
        return self._counts.get(key, 0.0)

    def total(self, *key: str) -> tuple[int, float]:
        """How many values a histogram has, and their sum."""
        found = self._histograms.get(key, [0.0])
        return round(sum(found[1:])), found[0]

    def keys(self, family: str, *labels: str) -> list[Key]:
        """The keys of a family that begin with some labels."""
        start = (family, *labels)
        with self._lock:
            known = [*self._counts, *self._histograms]
        return [key for key in known if key[: len(start)] == start]

    def take(self) -> Taken:
        """All that was counted, for `merge`; from here on it is counted from 0."""
        with self._lock:
            counts, self._counts = self._counts, {}
            histograms, self._histograms = self._histograms, {}
        return [*counts.items()], [*histograms.items()]

    def merge(self, taken: Taken) -> None:
        """Add what others have counted."""
        counts, histograms = taken
        with self._lock:
            for key, amount in counts:
                self._counts[tuple(key)] = self._counts.get(tuple(key), 0.0) + amount
            for key, numbers in histograms:
                own = self._histograms.setdefault(tuple(key), [0.0] * len(numbers))
                own[:] = map(sum, zip(own, numbers, strict=True))

    def collect(self) -> Iterator[Metric]:
        """The families as Prometheus has them."""
        with self._lock:
            counts = dict(self._counts)
            histograms = {key: list(numbers) for key, numbers in self._histograms.items()}
        for name, family in self._families.items():
            if not family.help:
                continue
            metric: GaugeMetricFamily | CounterMetricFamily | HistogramMetricFamily
            if family.bounds is not None:
                metric = HistogramMetricFamily(name, family.help, labels=family.labels)
                for (_, *labels), numbers in _of(name, histograms):
                    metric.add_metric(labels, _buckets(family.bounds, numbers[1:]), numbers[0])
            else:
                kind = GaugeMetricFamily if family.falls else CounterMetricFamily
                metric = kind(name, family.help, labels=family.labels)
                for (_, *labels), number in _of(name, counts):
                    metric.add_metric(labels, number)
            yield metric


def _of(family: str, numbers: dict[Key, _Number]) -> Iterator[tuple[Key, _Number]]:
    return ((key, each) for key, each in numbers.items() if key[0] == family)


def _buckets(bounds: tuple[float, ...], numbers: list[float]) -> list[tuple[str, float]]:
    """How many values were at most each bound."""
    found, below = [], 0.0
    for bound, number in zip((*bounds, inf), numbers, strict=True):
        below += number
        found.append(("+Inf" if isinf(bound) else str(bound), below))
    return found
