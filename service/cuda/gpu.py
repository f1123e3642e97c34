"""One GPU's session of a graph: fixed buffers for each size of batch, and CUDA graphs of them.

https://onnxruntime.ai/docs/execution-providers/CUDA-ExecutionProvider.html#using-cuda-graphs-preview
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from service.arrays import Arrays
from service.cuda.buckets import bucket_for, bucket_sizes, fill
from service.session import Shape

_logger = logging.getLogger(__name__)

_GRAPH = "gpu_graph_id"
_NO_GRAPH = "-1"


@dataclass(frozen=True)
class _Bucket:
    """What a size of batch runs with; the addresses never change."""

    binding: Any
    inputs: dict[str, Any]
    outputs: dict[str, Any]
    options: Any


class Gpu:
    """For one thread alone: CUDA graphs belong to the thread that captured them.

    Args:
        onnxruntime: The module.
        session: An `InferenceSession` on this GPU.
        device: Its number.
        inputs: Shape by name; all but the first axis are fixed.
        max_batch: Most windows of a run.
        reopen: Opens a session that is not meant for CUDA graphs, in place of one that is; None if
            this one is not.
    """

    def __init__(
        self,
        onnxruntime: Any,  # noqa: ANN401 - untyped
        session: Any,  # noqa: ANN401
        device: int,
        *,
        inputs: dict[str, Shape],
        max_batch: int,
        reopen: Callable[[], Any] | None,
    ) -> None:
        self._onnxruntime = onnxruntime
        self._session = session
        self._device = device
        self._inputs = inputs
        self._outputs = [node.name for node in session.get_outputs()]
        self._sizes = bucket_sizes(max_batch)
        self._reopen = reopen
        self._buckets: dict[int, _Bucket] = {}
        self._plain = self._options(_NO_GRAPH)

    @property
    def captures(self) -> bool:
        """Whether its runs replay CUDA graphs."""
        return self._reopen is not None

    def warm(self) -> None:
        """Make the buffers of every size, and capture its CUDA graph."""
        for size in reversed(self._sizes):
            self._run({name: _zeros(shape, size) for name, shape in self._inputs.items()}, size)

    def run(self, feeds: Arrays) -> Arrays:
        """Run the graph; `[batch, …]` by name in and out."""
        windows = len(next(iter(feeds.values())))
        return self._run(feeds, bucket_for(windows, self._sizes))

    def run_plainly(self, feeds: Arrays) -> Arrays:
        """Run the graph on arrays of any size, without buffers or CUDA graphs."""
        values = self._session.run(self._outputs, feeds, self._plain)
        return dict(zip(self._outputs, values, strict=True))

    def stop(self) -> None:
        """Make runs fail from here on."""
        for options in (self._plain, *(bucket.options for bucket in list(self._buckets.values()))):
            options.terminate = True

    def _run(self, feeds: Arrays, size: int) -> Arrays:
        try:
            return self._replay(feeds, size)
        except Exception as error:
            # A size that ran before is captured: it is the run that failed.
            if self._reopen is None or size in self._buckets:
                raise
            _logger.warning(
                "GPU %d: no CUDA graph of batches of %d could be captured; runs go without: %s",
                self._device,
                size,
                # A log may keep what it is given.
                str(error),
            )
            reopen = self._reopen
        # The stream of this session may still be capturing, which forbids much on this GPU until
        # it is gone. Not in the handler: the traceback holds buffers.
        self._buckets.clear()
        self._session = self._reopen = None
        self._session = reopen()
        return self._replay(feeds, size)

    def _replay(self, feeds: Arrays, size: int) -> Arrays:
        bucket = self._buckets.get(size) or self._make(size)
        windows = len(next(iter(feeds.values())))
        for name, value in bucket.inputs.items():
            value.update_inplace(fill(feeds[name], size))
        self._session.run_with_iobinding(bucket.binding, bucket.options)
        self._buckets[size] = bucket
        return {name: value.numpy()[:windows] for name, value in bucket.outputs.items()}

    def _make(self, size: int) -> _Bucket:
        zeros = {name: _zeros(shape, size) for name, shape in self._inputs.items()}
        # A plain run tells the outputs' shapes, and grows the memory a capture may not grow.
        outputs = self.run_plainly(zeros)
        binding = self._session.io_binding()
        bucket = _Bucket(
            binding,
            {name: self._buffer(rows) for name, rows in zeros.items()},
            {name: self._buffer(rows) for name, rows in outputs.items()},
            self._options(str(size) if self.captures else _NO_GRAPH),
        )
        for name, value in bucket.inputs.items():
            binding.bind_ortvalue_input(name, value)
        for name, value in bucket.outputs.items():
            binding.bind_ortvalue_output(name, value)
        return bucket

    def _buffer(self, rows: Any) -> Any:  # noqa: ANN401 - an OrtValue is untyped
        return self._onnxruntime.OrtValue.ortvalue_from_shape_and_type(
            list(rows.shape), rows.dtype, "cuda", self._device
        )

    def _options(self, graph: str) -> Any:  # noqa: ANN401
        options = self._onnxruntime.RunOptions()
        options.add_run_config_entry(_GRAPH, graph)
        return options


def _zeros(shape: Shape, size: int) -> Any:  # noqa: ANN401 - of numpy
    return np.zeros((size, *(axis or 1 for axis in shape[1:])), np.float32)
