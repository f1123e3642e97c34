"""A graph on one GPU.

https://onnxruntime.ai/docs/execution-providers/CUDA-ExecutionProvider.html#using-cuda-graphs-preview
"""

from __future__ import annotations

import ctypes
import logging
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from foretell.bundle.errors import BundleError
from foretell.service.arrays import Arrays
from foretell.service.cuda.device import CudaError, Device
from foretell.service.cuda.memory import NO_GRAPH, Replays
from foretell.service.errors import DeviceLostError
from foretell.service.session import CUDA, input_shapes, output_names

_logger = logging.getLogger(__name__)

# Lists of addresses for hundreds of products of a hundred windows each.
_RESERVE_BYTES = 16 * 1024 * 1024


class Opener(Protocol):
    """Opens a graph on a GPU."""

    def __call__(self, device: int, stream: int, *, captures: bool) -> Any:  # noqa: ANN401 - untyped
        """Open an `InferenceSession`.

        Args:
            device: Number of the GPU.
            stream: Its runs use it.
            captures: Whether these may be captured as CUDA graphs.

        Raises:
            BundleError: onnxruntime refuses the graph, or to capture it.
            StartError: CUDA does not work.
        """


class Gpu:
    """A session that one thread runs: CUDA graphs belong to the thread that captured them.

    Args:
        onnxruntime: The module.
        device: The GPU.
        open_session: Opens the graph there.
        max_batch: Most windows of a run, which replays a CUDA graph where these can be captured.
            None for any number: such runs take longer, and allocate what they need.

    Attributes:
        session: An `InferenceSession`; None once it is closed.
        captures: Whether runs replay CUDA graphs.

    Raises:
        BundleError: onnxruntime refuses the graph.
        CudaError: the device refuses its part.
        StartError: CUDA does not work.
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
        self.session: Any = None
        with device.exclusion.call():
            self._open()

    def warm(self) -> None:
        """Make the buffers, and capture a CUDA graph of every size; on the thread that runs it.

        Raises:
            ModelFailedError: the graph does not run.
            DeviceLostError: nor does any other here.
        """
        if self._max_batch is None:
            return
        try:
            with self._running:
                self._check_open()
                self._prepare(self._max_batch)
                if self.captures and not self._capture():
                    self._do_without()
                    self._prepare(self._max_batch)
        except Exception as error:
            raise self._device.failed(error) from error.with_traceback(None)

    def run(self, feeds: Arrays) -> Arrays:
        """Run the graph; `[batch, …]` by name in and out.

        Raises:
            ModelFailedError: onnxruntime raised; its error is the cause.
            DeviceLostError: no run can go well here any more.
        """
        if self._device.lost is not None:
            raise DeviceLostError(self._device.lost)
        try:
            with self._running:
                self._check_open()
                # Replays disturb no capture; whatever else runs may need memory.
                if self.captures and self._replays is not None:
                    return self._replays.run(feeds)
                with self._device.exclusion.call():
                    run = self._run_plainly if self._replays is None else self._replays.run
                    return run(feeds)
        except Exception as error:
            # Its traceback would keep the session alive.
            raise self._device.failed(error) from error.with_traceback(None)

    def stop(self) -> None:
        """Make plain runs that are going on fail at their next node."""
        self._plain.terminate = True

    def close(self) -> None:
        """Give back what it holds; runs that come later fail."""
        if self._device.lost is not None or not self._running.acquire(blocking=False):
            self._abandon()
            return
        try:
            with self._device.exclusion.call(), self._device.library.using(self._device.number):
                self._take_down()
        except CudaError as error:
            self._device.failed(error)
            self._abandon()
        finally:
            self._running.release()

    def _abandon(self) -> None:
        """Keep what it holds until the process has ended: to take it down would break that off.

        So it does where the device is lost, and where a run is still going on.
        """
        kept = (self.session, self._replays)
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(kept))

    def _check_open(self) -> None:
        if self.session is None:
            raise RuntimeError("the session is closed")

    def _open(self) -> None:
        number, library = self._device.number, self._device.library
        with library.using(number):
            stream = library.open_stream()
            try:
                self.session = self._opened(number, stream)
            except BaseException:
                library.close_stream(stream)
                raise
        self._stream = stream

    def _opened(self, number: int, stream: int) -> Any:  # noqa: ANN401
        if self.captures:
            try:
                return self._open_session(number, stream, captures=True)
            except BundleError as error:
                _logger.warning("GPU %d: runs go without CUDA graphs: %s", number, error)
                self.captures = False
        return self._open_session(number, stream, captures=False)

    def _take_down(self) -> None:
        if self.session is None:
            return
        if self._replays is not None:
            self._replays.free()
        self._replays = self.session = None
        self._device.library.close_stream(self._stream)

    def _do_without(self) -> None:
        """Another session in place of one whose stream may still be capturing."""
        with self._device.exclusion.call():
            self._take_down()
            self.captures = False
            self._open()

    def _prepare(self, max_batch: int) -> None:
        library, number = self._device.library, self._device.number
        with self._device.exclusion.call():
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
                # Besides telling the shapes, this takes the memory that a capture may not take.
                outputs=self._run_plainly(feeds),
                captures=self.captures,
            )

    def _reserve(self) -> None:
        """Have the session hold free pinned memory, for captures may take none.

        A product of matrices that do not lie evenly, such as one constant with one of each window,
        takes a list of their addresses, of which a captured graph keeps the host's copy.
        """
        module = self._onnxruntime
        native = module.capi.onnxruntime_pybind11_state
        pinned = native.OrtDevice(
            native.OrtDevice.gpu(),
            int(module.OrtDeviceMemoryType.HOST_ACCESSIBLE),
            int(module.OrtDeviceVendorId.NVIDIA),
            self._device.number,
        )
        # The public method knows no kind of memory. Taken and freed, it stays with the session.
        self.session._sess.create_ortvalue_from_shape_and_type(  # noqa: SLF001
            [_RESERVE_BYTES], np.uint8, pinned
        )

    def _capture(self) -> bool:
        """Capture every size, the largest first; False if one cannot be."""
        assert self._replays is not None  # noqa: S101 - it was prepared
        for size in reversed(self._replays.sizes):
            try:
                with self._device.exclusion.capture():
                    self._replays.run(self._zeros(size))
            except Exception as error:
                failure = self._device.failed(error)
                if isinstance(failure, DeviceLostError):
                    raise failure from error
                _logger.warning(
                    "GPU %d: no CUDA graph of batches of %d could be captured; runs go without: %s",
                    self._device.number,
                    size,
                    # A log may keep what it is given.
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
    """See `foretell.service.session.Session`; a worker runs the session of its own GPU.

    Args:
        gpus: One for every worker.
        graph: Where it came from.

    Attributes:
        captures: Whether all its runs replay CUDA graphs.
    """

    def __init__(self, gpus: Sequence[Gpu], graph: Path) -> None:
        self._gpus = gpus
        self.graph = graph
        self.provider = CUDA
        self.inputs = input_shapes(gpus[0].session)
        self.outputs = output_names(gpus[0].session)

    @property
    def captures(self) -> bool:
        """See above."""
        return all(gpu.captures for gpu in self._gpus)

    def warm(self, worker: int) -> None:
        """See `Session.warm`; captures the CUDA graphs of the worker's GPU."""
        self._gpus[worker].warm()

    def shrink(self, feeds: Arrays) -> None:
        """There is nothing to give back: a GPU's buffers are those of its graphs."""

    def run(self, feeds: Arrays, worker: int = 0) -> Arrays:
        """See `Session.run`; to be called on the worker's thread."""
        return self._gpus[worker].run(feeds)

    def stop(self) -> None:
        """See `Session.stop`."""
        for gpu in self._gpus:
            gpu.stop()

    def close(self) -> None:
        """See `Session.close`."""
        for gpu in self._gpus:
            gpu.close()
