"""Counters and histograms by labels, and Prometheus' text format.

prometheus_client takes seconds for the samples of thousands of models, and blocks counting
meanwhile. This module writes them in small pieces, without an object for each sample.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from itertools import chain
from typing import NamedTuple

# The name of a family and the values of its labels.
Key = tuple[str, ...]
# Counters and histograms with their keys, in JSON's types.
Taken = tuple[list[tuple[Key, float]], list[tuple[Key, list[float]]]]

_MODEL = ("model", "version")
# Histograms that are copied at a time.
_COPIED = 256
# Label values of metrics without a model: the family lacks these labels, or the request has no
# model.
_NO_VERSION = {(), ("", "")}


class Family(NamedTuple):
    """Metrics that only differ in the values of their labels; names of counters end in `_total`."""

    help: str
    labels: tuple[str, ...] = ()
    # Upper bounds of the buckets of a histogram; None for counters and gauges.
    bounds: tuple[float, ...] | None = None

    def head(self, name: str) -> bytes:
        """The lines before the samples."""
        kind = "counter" if name.endswith("_total") else "histogram" if self.bounds else "gauge"
        return f"# HELP {name} {self.help}\n# TYPE {name} {kind}\n".encode()

    def sample(self, name: str, values: Sequence[str], number: float) -> bytes:
        return f"{name}{_braces(self.labels, values)} {float(number)}\n".encode()

    def histogram(self, name: str, values: Sequence[str], numbers: Sequence[float]) -> bytes:
        """The samples of a histogram: its sum, and the count of each bucket."""
        labels = _braces(self.labels, values)
        begin, end = _braces((*self.labels, "le"), (*values, "\0")).split("\0")
        lines, below = [], 0.0
        for bound, number in zip((*(self.bounds or ()), "+Inf"), numbers[1:], strict=True):
            below += number
            lines.append(f"{name}_bucket{begin}{bound}{end} {below}\n")
        lines.append(f"{name}_count{labels} {below}\n{name}_sum{labels} {numbers[0]}\n")
        return "".join(lines).encode()

    def gauges(
        self, name: str, samples: Iterable[tuple[Sequence[str], float]] = ()
    ) -> Iterator[bytes]:
        yield self.head(name)
        for values, number in samples:
            yield self.sample(name, values, number)


def _braces(labels: Sequence[str], values: Sequence[str]) -> str:
    pairs = sorted(zip(labels, values, strict=True))
    quoted = ",".join(f'{label}="{_quoted(value)}"' for label, value in pairs)
    return f"{{{quoted}}}" if quoted else ""


def _quoted(value: str) -> str:
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


class Counts:
    """Counters and histograms of families by name, which threads may share."""

    def __init__(self, families: Mapping[str, Family]) -> None:
        self._families = families
        self._lock = threading.Lock()
        self._counters: dict[Key, float] = {}
        # The sum of the values, and the count of each bucket; the last bucket has no bound.
        self._histograms: dict[Key, list[float]] = {}
        # The keys of counters and histograms by name and version of their model.
        self._keys: dict[Key, list[Key]] = {}

    def add(self, *key: str, amount: float = 1.0) -> None:
        with self._lock:
            self._add(key, amount)

    def observe(self, *values: tuple[Key, float], also: Mapping[Key, float] | None = None) -> None:
        """Add values to histograms, and amounts to counters."""
        with self._lock:
            for key, value in values:
                numbers = self._histograms.get(key)
                if numbers is None:
                    numbers = self._begin(key)
                numbers[0] += value
                numbers[1 + bisect_left(self._families[key[0]].bounds or (), value)] += 1
            for key, amount in (also or {}).items():
                if key in self._counters:
                    self._counters[key] += amount
                else:
                    self._add(key, amount)

    def begin(self, *key: str) -> None:
        """Add an empty histogram: rates need numbers that start at 0."""
        with self._lock:
            if key not in self._histograms:
                self._begin(key)

    def count(self, *key: str) -> float:
        return self._counters.get(key, 0.0)

    def counters(self) -> dict[Key, float]:
        with self._lock:
            return dict(self._counters)

    def histograms(self) -> Iterator[tuple[Key, list[float]]]:
        """The sum and the buckets' counts of each histogram; locks a few histograms at a time."""
        with self._lock:
            every = [*self._histograms.items()]
        for start in range(0, len(every), _COPIED):
            with self._lock:
                some = [(key, list(numbers)) for key, numbers in every[start : start + _COPIED]]
            yield from some

    def take(self) -> Taken:
        """Take all numbers, for `merge`, and start again at 0."""
        with self._lock:
            counters, self._counters = self._counters, {}
            histograms, self._histograms = self._histograms, {}
            self._keys = {}
        return [*counters.items()], [*histograms.items()]

    def merge(self, taken: Taken) -> None:
        counters, histograms = taken
        with self._lock:
            for key, amount in counters:
                self._add(tuple(key), amount)
            for key, numbers in histograms:
                own = self._histograms.get(tuple(key)) or self._begin(tuple(key))
                own[:] = map(sum, zip(own, numbers, strict=True))

    def keep(self, versions: Set[tuple[str, str]]) -> None:
        """Drop the numbers of all other versions."""
        with self._lock:
            for version in self._keys.keys() - versions - _NO_VERSION:
                for key in self._keys.pop(version):
                    self._counters.pop(key, None)
                    self._histograms.pop(key, None)

    def write(self) -> Iterator[bytes]:
        pieces = {name: [family.head(name)] for name, family in self._families.items()}
        for (name, *values), number in self.counters().items():
            pieces[name].append(self._families[name].sample(name, values, number))
        for (name, *values), numbers in self.histograms():
            pieces[name].append(self._families[name].histogram(name, values, numbers))
        return chain.from_iterable(pieces.values())

    def _add(self, key: Key, amount: float) -> None:
        known = self._counters.get(key)
        if known is None:
            self._note(key)
        self._counters[key] = (known or 0.0) + amount

    def _begin(self, key: Key) -> list[float]:
        self._note(key)
        bounds = self._families[key[0]].bounds or ()
        self._histograms[key] = begun = [0.0] * (len(bounds) + 2)
        return begun

    def _note(self, key: Key) -> None:
        labels = self._families[key[0]].labels
        version = tuple(v for name, v in zip(labels, key[1:], strict=True) if name in _MODEL)
        self._keys.setdefault(version, []).append(key)
