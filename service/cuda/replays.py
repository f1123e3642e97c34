"""Runs of a graph on a GPU with memory of its own, there and, pinned, on the host."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from foretell.service.arrays import Arrays
from foretell.service.cuda.device import Library

# Kernels load whole lines of memory.
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

    A run puts its rows into pinned memory. The session's stream copies them to the device, runs the
    graph and copies the outputs back; then the thread waits for all of it. The buffers hold the
    largest batch, and smaller ones use them, too, since one runs at a time.

    `feeds` are the largest batch, of any values, and `outputs` what the graph makes of it. With
    `captures` the first run of each size is captured, and replayed from then on. `sizes` are those
    of the batches that run: others are filled up to the next of them.
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
        # For each array: its addresses on the device and on the host, and the bytes of a row.
        places: list[tuple[int, int, int]] = []
        for (_, rows), offset in zip(arrays, offsets, strict=False):
            view = pinned[offset : offset + rows.nbytes].view(rows.dtype)
            host.append(view.reshape(rows.shape))
            places.append((self._memory + offset, self._pinned + offset, rows.nbytes // len(rows)))
        count = len(feeds)
        self._inputs, self._to_device = dict(zip(feeds, host, strict=False)), places[:count]
        self._outputs, self._to_host = dict(zip(outputs, host[count:], strict=True)), places[count:]
        # By size: binding and options.
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
        # The next run writes over the buffers.
        return {name: rows[:windows].copy() for name, rows in self._outputs.items()}

    def free(self) -> None:
        """Free the memory, and drop the session; nothing runs any more."""
        self._buckets.clear()
        self._inputs, self._outputs = {}, {}
        self._session = None
        self._library.unpin(self._pinned)
        self._library.free(self._memory)
