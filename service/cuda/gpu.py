"""A graph on one GPU, and the session that has one on each GPU.

https://onnxruntime.ai/docs/execution-providers/CUDA-ExecutionProvider.html#using-cuda-graphs-preview
"""

from __future__ import annotations

import ctypes
import logging
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from foretell.bundle.errors import BundleError
from foretell.service.arrays import Arrays
from foretell.service.cuda.device import CudaError, Device
from foretell.service.cuda.replays import NO_GRAPH, Replays
from foretell.service.errors import DeviceLostError
from foretell.service.session import CUDA, input_shapes, output_names

_logger = logging.getLogger(__name__)

# Lists of addresses for hundreds of products of a hundred windows each.
_RESERVE_BYTES = 16 * 1024 * 1024
# Opens an `InferenceSession`: takes the GPU's number, the stream of its runs, and whether runs may
# be captured as CUDA graphs. Raises BundleError if onnxruntime refuses the graph or its capture,
# and StartError if CUDA does not work.
Opener = Callable[[int, int, bool], Any]


class Gpu:
    """A graph on one GPU, run by one thread: CUDA graphs belong to the thread that captured them.

    Runs of at most `max_batch` windows replay CUDA graphs if these can be captured. With None runs
    may have any number of windows: they take longer, and allocate memory.
    """

    def __init__(
        self,
        onnxruntime: Any,  # noqa: ANN401 - untyped
        device: Device,
        open_session: Opener,
        *,
        max_batch: int | None,
    ) -> None:
        self._onnxruntime = onnxruntime
        self._device = device
        self._open_session = open_session
        self._max_batch = max_batch
        self._replays: Replays | None = None
        self._running = threading.Lock()
        self._plain = onnxruntime.RunOptions()
        self._plain.add_run_config_entry(*NO_GRAPH)
        self.captures = max_batch is not None
        # An `InferenceSession`; None once it is closed.
        self.session: Any = None
        with device.capture_lock.call():
            self._open()

    def warm(self) -> None:
        """Allocate buffers, and capture a CUDA graph of every size; on the thread of its runs."""
        if self._max_batch is None:
            return
        try:
            with self._running:
                self._check_open()
                self._prepare(self._max_batch)
                if self.captures and not self._capture():
                    # The stream of this session may still be capturing.
                    with self._device.capture_lock.call():
                        self._free()
                        self.captures = False
                        self._open()
                    self._prepare(self._max_batch)
        except Exception as error:
            raise self._device.failure(error) from error.with_traceback(None)

    def run(self, feeds: Arrays) -> Arrays:
        """Run the graph, `[batch, …]` by name; raises ModelFailedError or DeviceLostError."""
        if self._device.lost is not None:
            raise DeviceLostError(self._device.lost)
        try:
            with self._running:
                self._check_open()
                # Replays disturb no capture; other runs may allocate memory.
                if self.captures and self._replays is not None:
                    return self._replays.run(feeds)
                with self._device.capture_lock.call():
                    run = self._run_plainly if self._replays is None else self._replays.run
                    return run(feeds)
        except Exception as error:
            # Its traceback would keep the session alive.
            raise self._device.failure(error) from error.with_traceback(None)

    def stop(self) -> None:
        """Make current and later plain runs fail at their next node."""
        self._plain.terminate = True

    def close(self) -> None:
        if self._device.lost is not None or not self._running.acquire(blocking=False):
            self._abandon()
            return
        try:
            device = self._device
            with device.capture_lock.call(), device.library.using(device.number):
                self._free()
        except CudaError as error:
            self._device.failure(error)
            self._abandon()
        finally:
            self._running.release()

    def _abandon(self) -> None:
        """Never free its objects: on a lost device, or during a run, that ends the process."""
        held = (self.session, self._replays)
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(held))

    def _check_open(self) -> None:
        if self.session is None:
            raise RuntimeError("the session is closed")

    def _open(self) -> None:
        number, library = self._device.number, self._device.library
        with library.using(number):
            self._stream = library.open_stream()
            try:
                self.session = self._open_on(number, self._stream)
            except BaseException:
                library.close_stream(self._stream)
                raise

    def _open_on(self, number: int, stream: int) -> Any:  # noqa: ANN401
        if self.captures:
            try:
                return self._open_session(number, stream, True)
            except BundleError as error:
                _logger.warning("GPU %d: runs go without CUDA graphs: %s", number, error)
                self.captures = False
        return self._open_session(number, stream, False)

    def _free(self) -> None:
        if self.session is None:
            return
        if self._replays is not None:
            self._replays.free()
        self._replays = self.session = None
        self._device.library.close_stream(self._stream)

    def _prepare(self, max_batch: int) -> None:
        library, number = self._device.library, self._device.number
        with self._device.capture_lock.call():
            library.use(number)
            feeds = self._zeros(max_batch)
            if self.captures:
                self._reserve()
            self._replays = Replays(
                self._onnxruntime,
                self.session,
                library,
                number,
                self._stream,
                feeds=feeds,
                # This run also allocates the memory that a capture cannot.
                outputs=self._run_plainly(feeds),
                captures=self.captures,
            )

    def _reserve(self) -> None:
        """Reserve free pinned memory in the session, since captures cannot allocate any.

        A batched product without constant strides, such as a constant matrix times one of each
        window, needs a list of addresses. A captured graph keeps the host's copy of the list.
        """
        module = self._onnxruntime
        native = module.capi.onnxruntime_pybind11_state
        pinned = native.OrtDevice(
            native.OrtDevice.gpu(),
            int(module.OrtDeviceMemoryType.HOST_ACCESSIBLE),
            int(module.OrtDeviceVendorId.NVIDIA),
            self._device.number,
        )
        # The public method does not support pinned memory. Once freed, it stays in the session's
        # arena.
        self.session._sess.create_ortvalue_from_shape_and_type(  # noqa: SLF001
            [_RESERVE_BYTES], np.uint8, pinned
        )

    def _capture(self) -> bool:
        """Capture every size, the largest first; False if one cannot be captured."""
        assert self._replays is not None  # noqa: S101 - it was prepared
        for size in reversed(self._replays.sizes):
            try:
                with self._device.capture_lock.capture():
                    self._replays.run(self._zeros(size))
            except Exception as error:
                failure = self._device.failure(error)
                if isinstance(failure, DeviceLostError):
                    raise failure from error
                _logger.warning(
                    "GPU %d: no CUDA graph of batches of %d could be captured; runs go without: %s",
                    self._device.number,
                    size,
                    # Text, as a log may keep its arguments, and with an error the session.
                    str(error),
                )
                return False
        return True

    def _run_plainly(self, feeds: Arrays) -> Arrays:
        names = output_names(self.session)
        return dict(zip(names, self.session.run(names, feeds, self._plain), strict=True))

    def _zeros(self, size: int) -> Arrays:
        return {
            name: np.zeros((size, *(axis or 1 for axis in shape[1:])), np.float32)
            for name, shape in input_shapes(self.session).items()
        }


class CudaSession:
    """A `foretell.service.session.Session`; each inference thread runs the graph on its own GPU."""

    def __init__(self, gpus: Sequence[Gpu], graph: Path) -> None:
        self._gpus = gpus
        self.graph = graph
        self.provider = CUDA
        self.inputs = input_shapes(gpus[0].session)
        self.outputs = output_names(gpus[0].session)

    @property
    def captures(self) -> bool:
        return all(gpu.captures for gpu in self._gpus)

    def warm(self, thread: int) -> None:
        self._gpus[thread].warm()

    def shrink(self, feeds: Arrays) -> None:
        """Do nothing: a GPU's buffers belong to its graphs."""

    def run(self, feeds: Arrays, thread: int = 0) -> Arrays:
        return self._gpus[thread].run(feeds)

    def stop(self) -> None:
        for gpu in self._gpus:
            gpu.stop()

    def close(self) -> None:
        for gpu in self._gpus:
            gpu.close()
