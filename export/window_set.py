"""Inputs of the graphs, many windows together."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from foretell.models.inputs import Inputs

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class WindowSet:
    """Inputs of the graphs.

    Attributes:
        name: Kind of the windows.
        inputs: Inputs by the name of the graph's input, in the shapes of `Inputs`. `history` is in
            the user's units; NaN where a value is missing.
    """

    name: str
    inputs: dict[str, Floats]

    @classmethod
    def of(cls, name: str, inputs: Inputs) -> WindowSet:
        """Windows from a model's inputs."""
        return cls(name, arrays_of(inputs))

    @property
    def history(self) -> Floats:
        """`[batch, context, channels]`, in the user's units."""
        return self.inputs["history"]

    def __len__(self) -> int:
        return len(self.history)

    def with_history(self, name: str, history: Floats) -> WindowSet:
        """Windows of another kind, with another history."""
        return WindowSet(name, self.inputs | {"history": history})

    def take(self, rows: NDArray[np.int64] | slice) -> WindowSet:
        """Some of the windows."""
        return replace(self, inputs={name: part[rows] for name, part in self.inputs.items()})

    def batches(self, size: int) -> Iterator[WindowSet]:
        """All windows in order, `size` at a time; the last batch may be smaller."""
        for start in range(0, len(self), size):
            yield self.take(slice(start, start + size))


def arrays_of(inputs: Inputs) -> dict[str, Floats]:
    """The inputs that a model reads, by name."""
    return {name: part.cpu().numpy() for name, part in inputs._asdict().items() if part is not None}
