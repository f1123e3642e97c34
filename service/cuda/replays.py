"""The shortest way of a batch to a GPU and back, for one size of batch after another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from foretell.service.arrays import Arrays
from foretell.service.cuda.buckets import bucket_for, bucket_sizes
from foretell.service.cuda.buffers import Buffers
from foretell.service.cuda.library import Library

_GRAPH = "gpu_graph_id"
NO_GRAPH = (_GRAPH, "-1")
# The wait comes once, after the copies to the host.
_NO_WAIT = ("disable_synchronize_execution_providers", "1")


@dataclass(frozen=True)
class _Bucket:
    """What batches of a size run with."""

    binding: Any
    options: Any


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
        self._buckets = {}
        for size in self.sizes:
            options = onnxruntime.RunOptions()
            options.add_run_config_entry(*((_GRAPH, str(size)) if captures else NO_GRAPH))
            options.add_run_config_entry(*_NO_WAIT)
            self._buckets[size] = _Bucket(self._bind(device, size), options)

    def run(self, feeds: Arrays) -> Arrays:
        """Run the graph; `[batch, …]` by name in and out."""
        windows = len(next(iter(feeds.values())))
        size = bucket_for(windows, self.sizes)
        bucket = self._buckets[size]
        self._inputs.fill(feeds, size)
        self._inputs.send(size, self._stream)
        self._session.run_with_iobinding(bucket.binding, bucket.options)
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
