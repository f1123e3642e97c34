"""Memory of a GPU for the inputs or outputs of a graph, and the host's side of it."""

from __future__ import annotations

import ctypes
from typing import NamedTuple

import numpy as np

from foretell.service.arrays import Arrays
from foretell.service.cuda.library import Library

# Kernels load whole lines of memory.
_ALIGNMENT = 256


class _Place(NamedTuple):
    """Where an array is: addresses on the device and on the host, and the bytes of a row."""

    device: int
    host: int
    row: int


class Buffers:
    """Arrays that are on a device and, pinned, on the host, at addresses that never change.

    Args:
        library: Of CUDA; the calling thread uses the device.
        arrays: `[rows, …]` by name, of which shapes and types are taken.

    Attributes:
        host: The host's arrays by name.

    Raises:
        CudaError: there is not so much memory.
    """

    def __init__(self, library: Library, arrays: Arrays) -> None:
        self._library = library
        offsets, size = {}, 0
        for name, rows in arrays.items():
            offsets[name] = size
            size += -(-rows.nbytes // _ALIGNMENT) * _ALIGNMENT
        self._memory = library.allocate(size)
        try:
            self._pinned = library.pin(size)
        except Exception:
            library.free(self._memory)
            raise
        pinned = np.ctypeslib.as_array((ctypes.c_ubyte * size).from_address(self._pinned))
        self.host: Arrays = {}
        self._places = {}
        for name, rows in arrays.items():
            first = offsets[name]
            own = pinned[first : first + rows.nbytes]
            self.host[name] = own.view(rows.dtype).reshape(rows.shape)
            self._places[name] = _Place(
                self._memory + first, self._pinned + first, rows.nbytes // len(rows)
            )

    def device(self, name: str) -> int:
        """The address of an array on the device."""
        return self._places[name].device

    def fill(self, feeds: Arrays, size: int) -> None:
        """Put rows into the host's arrays, the last one repeated up to `size` of them."""
        for name, rows in feeds.items():
            target = self.host[name]
            target[: len(rows)] = rows
            target[len(rows) : size] = rows[-1]

    def send(self, size: int, stream: int) -> None:
        """Have a stream copy the first rows to the device."""
        for device, host, row in self._places.values():
            self._library.copy(device, host, size * row, stream)

    def fetch(self, size: int, stream: int) -> None:
        """Have a stream copy the first rows to the host."""
        for device, host, row in self._places.values():
            self._library.copy(host, device, size * row, stream)

    def taken(self, size: int) -> Arrays:
        """Copies of the host's first rows."""
        return {name: rows[:size].copy() for name, rows in self.host.items()}

    def free(self) -> None:
        """Give the memory back; nothing of it may be used any more."""
        self.host.clear()
        self._library.unpin(self._pinned)
        self._library.free(self._memory)
