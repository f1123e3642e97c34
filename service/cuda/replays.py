"""Runs of a graph with buffers on a GPU and in pinned memory of the host."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from foretell.service.arrays import Arrays
from foretell.service.cuda.device import Library

# Kernels load whole cache lines.
_ALIGNMENT = 256
_GRAPH = "gpu_graph_id"
NO_GRAPH = (_GRAPH, "-1")
# The thread waits once, after the copies to the host.
_NO_WAIT = ("disable_synchronize_execution_providers", "1")


def bucket_sizes(largest: int) -> tuple[int, ...]:
    """The powers of two below the largest batch, and the largest batch."""
    return (*(2**power for power in range((largest - 1).bit_length())), largest)


class Replays:
    """Runs of a session with fixed buffers, replayed from CUDA graphs or not.

    A run writes its rows into pinned memory. The session's stream copies them to the device, runs
    the graph and copies the outputs back; the thread waits once, at the end. The buffers hold the
    largest batch; smaller ones share them, since one runs at a time.

    `feeds` are the largest batch, with any values, and `outputs` its outputs. With `captures` the
    first run of each size is captured, and later ones replay it. Batches run in one of `sizes`:
    others are padded to the next size.
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
        self._session, self._library, self._stream = session, library, stream
        self.sizes = bucket_sizes(len(next(iter(feeds.values()))))
        arrays = [*feeds.items(), *outputs.items()]
        offsets = np.cumsum(
            [0, *(-(-rows.nbytes // _ALIGNMENT) * _ALIGNMENT for _, rows in arrays)]
        ).tolist()
        size = offsets[-1]
        self._memory = library.allocate(size)
        try:
            self._pinned = library.pin(size)
        except Exception:
            library.free(self._memory)
            raise
        pinned = np.ctypeslib.as_array((ctypes.c_ubyte * size).from_address(self._pinned))
        host: list[np.ndarray[Any, Any]] = []
        # Addresses of each array on the device and on the host, and bytes of a row.
        places: list[tuple[int, int, int]] = []
        for (_, rows), offset in zip(arrays, offsets, strict=False):
            view = pinned[offset : offset + rows.nbytes].view(rows.dtype)
            host.append(view.reshape(rows.shape))
            places.append((self._memory + offset, self._pinned + offset, rows.nbytes // len(rows)))
        count = len(feeds)
        self._inputs, self._to_device = dict(zip(feeds, host, strict=False)), places[:count]
        self._outputs, self._to_host = dict(zip(outputs, host[count:], strict=True)), places[count:]
        # Binding and options by size.
        self._buckets: dict[int, tuple[Any, Any]] = {}
        for windows in self.sizes:
            binding, options = session.io_binding(), onnxruntime.RunOptions()
            binds = [binding.bind_input] * count + [binding.bind_output] * len(outputs)
            for bind, (name, rows), (address, _, _) in zip(binds, arrays, places, strict=True):
                bind(name, "cuda", device, rows.dtype, (windows, *rows.shape[1:]), address)
            options.add_run_config_entry(*((_GRAPH, str(windows)) if captures else NO_GRAPH))
            options.add_run_config_entry(*_NO_WAIT)
            self._buckets[windows] = binding, options

    def run(self, feeds: Arrays) -> Arrays:
        windows = len(next(iter(feeds.values())))
        size = next(size for size in self.sizes if windows <= size)
        for name, rows in feeds.items():
            target = self._inputs[name]
            target[:windows] = rows
            target[windows:size] = rows[-1]
        for device, host, row in self._to_device:
            self._library.copy(device, host, size * row, self._stream)
        self._session.run_with_iobinding(*self._buckets[size])
        for device, host, row in self._to_host:
            self._library.copy(host, device, windows * row, self._stream)
        self._library.wait(self._stream)
        # The next run overwrites the buffers.
        return {name: rows[:windows].copy() for name, rows in self._outputs.items()}

    def free(self) -> None:
        """Free the memory, and drop the session; it must not run any more."""
        self._buckets.clear()
        self._inputs, self._outputs = {}, {}
        self._session = None
        self._library.unpin(self._pinned)
        self._library.free(self._memory)
