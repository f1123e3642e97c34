"""Memory of a GPU for a graph's inputs and outputs, and the runs that go from and to it."""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

import numpy as np

from foretell.service.arrays import Arrays
from foretell.service.cuda.device import Library


def bucket_sizes(largest: int) -> tuple[int, ...]:
    """The powers of two below the largest batch, and that one."""
    return (*(2**power for power in range((largest - 1).bit_length())), largest)


def bucket_for(windows: int, sizes: tuple[int, ...]) -> int:
    """The smallest bucket that so many windows fit; they must fit the largest."""
    return next(size for size in sizes if windows <= size)


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


_GRAPH = "gpu_graph_id"
NO_GRAPH = (_GRAPH, "-1")
# The wait comes once, after the copies to the host.
_NO_WAIT = ("disable_synchronize_execution_providers", "1")


class Replays:
    """Runs of a session with fixed buffers, to be replayed from CUDA graphs or not.

    Rows are put into pinned memory. The session's stream copies them to the device, runs the graph
    and copies the outputs back; then the thread waits for all of it together. The buffers are as
    large as the largest batch, and smaller ones use the same, since one runs at a time.

    Args:
        onnxruntime: The module.
        session: An `InferenceSession` whose runs use `stream`.
        library: Of CUDA; the calling thread uses the device.
        device: Its number.
        stream: See above.
        feeds: The largest batch; with its outputs it tells the shapes.
        outputs: See above.
        captures: Whether the first run of each size is captured, and replayed from then on.

    Attributes:
        sizes: Batches that are run, `[windows, …]` filled up to the next of them.

    Raises:
        CudaError: there is not enough memory.
    """

    def __init__(
        self,
        onnxruntime: Any,  # noqa: ANN401 - untyped
        session: Any,  # noqa: ANN401
        library: Library,
        device: int,
        stream: int,
        *,
        feeds: Arrays,
        outputs: Arrays,
        captures: bool,
    ) -> None:
        self._session = session
        self._library = library
        self._stream = stream
        self.sizes = bucket_sizes(len(next(iter(feeds.values()))))
        self._inputs = Buffers(library, feeds)
        try:
            self._outputs = Buffers(library, outputs)
        except Exception:
            self._inputs.free()
            raise
        # What batches of a size run with.
        self._buckets: dict[int, tuple[Any, Any]] = {}
        for size in self.sizes:
            options = onnxruntime.RunOptions()
            options.add_run_config_entry(*((_GRAPH, str(size)) if captures else NO_GRAPH))
            options.add_run_config_entry(*_NO_WAIT)
            self._buckets[size] = self._bind(device, size), options

    def run(self, feeds: Arrays) -> Arrays:
        """Run the graph; `[batch, …]` by name in and out."""
        windows = len(next(iter(feeds.values())))
        size = bucket_for(windows, self.sizes)
        binding, options = self._buckets[size]
        self._inputs.fill(feeds, size)
        self._inputs.send(size, self._stream)
        self._session.run_with_iobinding(binding, options)
        self._outputs.fetch(windows, self._stream)
        self._library.wait(self._stream)
        return self._outputs.taken(windows)

    def free(self) -> None:
        """Give the memory back, and let go of the session."""
        self._buckets.clear()
        self._session = None
        self._inputs.free()
        self._outputs.free()

    def _bind(self, device: int, size: int) -> Any:  # noqa: ANN401
        binding = self._session.io_binding()
        for buffers, bind in (
            (self._inputs, binding.bind_input),
            (self._outputs, binding.bind_output),
        ):
            for name, rows in buffers.host.items():
                shape = (size, *rows.shape[1:])
                bind(name, "cuda", device, rows.dtype, shape, buffers.device(name))
        return binding
