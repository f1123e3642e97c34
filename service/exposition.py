"""Prometheus' text format, in small pieces and without an object a sample.

prometheus_client takes seconds for the samples of thousands of models, and holds up whoever counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal


class Samples:
    """Writes the samples of a family.

    Args:
        name: Its name.
        told: What they are.
        kind: Of what kind.
        labels: Names of their labels.
        bounds: Upper bounds of a histogram's buckets.
    """

    def __init__(
        self,
        name: str,
        told: str,
        kind: Literal["counter", "gauge", "histogram"],
        labels: Sequence[str] = (),
        bounds: Iterable[float] = (),
    ) -> None:
        self._name = f"{name}_total" if kind == "counter" else name
        self._labels = labels
        self._bounds = [*map(str, bounds), "+Inf"]
        self.head = f"# HELP {self._name} {told}\n# TYPE {self._name} {kind}\n".encode()

    def one(self, values: Sequence[str], number: float) -> bytes:
        """The sample of a count or a gauge, by the values of its labels."""
        return f"{self._name}{_braces(self._labels, values)} {float(number)}\n".encode()

    def histogram(self, values: Sequence[str], numbers: Sequence[float]) -> bytes:
        """The samples of a histogram.

        Args:
            values: Of its labels.
            numbers: The sum of its values, and how many fell into each bucket.
        """
        own = _braces(self._labels, values)
        begin, end = _braces((*self._labels, "le"), (*values, "\0")).split("\0")
        begin = f"{self._name}_bucket{begin}"
        lines, below = [], 0.0
        for bound, number in zip(self._bounds, numbers[1:], strict=True):
            below += number
            lines.append(f"{begin}{bound}{end} {below}\n")
        lines.append(f"{self._name}_count{own} {below}\n{self._name}_sum{own} {numbers[0]}\n")
        return "".join(lines).encode()


def gauge(
    name: str, told: str, labels: Sequence[str], samples: Iterable[tuple[Sequence[str], float]]
) -> Iterator[bytes]:
    """A family of gauges, of values of labels and numbers."""
    written = Samples(name, told, "gauge", labels)
    yield written.head
    for values, number in samples:
        yield written.one(values, number)


def _braces(labels: Sequence[str], values: Sequence[str]) -> str:
    """Labels as they stand behind a name."""
    pairs = sorted(zip(labels, values, strict=True))
    told = ",".join(f'{label}="{_quoted(value)}"' for label, value in pairs)
    return f"{{{told}}}" if told else ""


def _quoted(value: str) -> str:
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
