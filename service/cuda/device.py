"""CUDA's library and one GPU of this process: errors, loss, and the lock of captures."""

from __future__ import annotations

import ctypes
import logging
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from foretell.service.errors import DeviceLostError, ModelFailedError, ServiceError

_logger = logging.getLogger(__name__)

# The libraries that onnxruntime's CUDA provider is linked with, each after its own dependencies.
# onnxruntime's own preloading also loads cuFFT and nvrtc, which no exported graph needs.
_LINKED = ("libcudart.so.{}", "libcublasLt.so.{}", "libcublas.so.{}", "libcurand.so.10")
_DRIVER = "libcuda.so.1"
_NON_BLOCKING_STREAM = 1
# A mode of captures: calls of this thread break no capture of another thread.
_THREAD_LOCAL = 1
_ANY_DIRECTION = 4

# Errors after which CUDA requires the process to end: uncorrectable and contained errors of memory
# and links, illegal addresses and instructions, launches that failed or took too long, the end of
# MPS, and unknown errors.
_STICKY = frozenset({214, 220, 226, 700, 702, 709, 710, *range(714, 720), 721, 810, 999})
# Errors of a working device: it is full, or a capture is in progress.
_PASSING = frozenset({2, *range(900, 909)})
# onnxruntime reports errors of calls by number, and errors of kernels by name.
_NUMBER = re.compile(r"CUDA failure (\d+)")
_NAME = re.compile(r"\bcudaError\w+")


class CudaError(Exception):
    """A call of the CUDA runtime failed with `code`, a `cudaError_t`."""

    def __init__(self, code: int, name: str, call: str) -> None:
        super().__init__(f"CUDA error {name} ({code}) in {call}")
        self.code = code


def preload(major: str) -> None:
    """Load CUDA's libraries from their wheels, or from the system; OSError names a missing one."""
    wheels = find_spec("nvidia")
    roots = wheels.submodule_search_locations if wheels is not None else None
    for pattern in _LINKED:
        name = pattern.format(major)
        paths = [Path(root) / f"cu{major}" / "lib" / name for root in roots or ()]
        ctypes.CDLL(next((str(path) for path in paths if path.exists()), name))


def gpu_count(driver: str = _DRIVER) -> int:
    """The number of GPUs that this process may use (`CUDA_VISIBLE_DEVICES`); 0 without a driver."""
    try:
        library = ctypes.CDLL(driver)
    except OSError:
        return 0
    count = ctypes.c_int()
    if library.cuInit(0) or library.cuDeviceGetCount(ctypes.byref(count)):
        return 0
    return count.value


class Library:
    """`libcudart`, the one that onnxruntime is linked with.

    Addresses and streams are integers, sizes are bytes. Calls concern the current device of the
    calling thread, and raise `CudaError`.
    """

    def __init__(self, major: str) -> None:
        name = f"libcudart.so.{major}"
        self._calls = ctypes.CDLL(name)
        self._name = self._calls.cudaGetErrorName
        self._name.restype = ctypes.c_char_p
        # This call only enqueues a copy. Releasing the GIL takes longer, and getting it back from a
        # busy thread a thousand times as long.
        self._copy = ctypes.PyDLL(name).cudaMemcpyAsync
        address, size, number = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
        self._copy.argtypes = (address, address, size, number, address)

    def name(self, code: int) -> str:
        """The name of a `cudaError_t`, such as `cudaErrorIllegalAddress`."""
        name: bytes = self._name(code)
        return name.decode()

    def use(self, device: int) -> None:
        """Set the calling thread's device; `CaptureLock` keeps its calls away from captures."""
        self._call("cudaSetDevice", device)
        # The tests' fake library lacks this function.
        exchange = getattr(self._calls, "cudaThreadExchangeStreamCaptureMode", None)
        if exchange is not None:
            self._check(exchange(ctypes.byref(ctypes.c_int(_THREAD_LOCAL))), exchange.__name__)

    @contextmanager
    def using(self, device: int) -> Iterator[None]:
        before = ctypes.c_int()
        self._call("cudaGetDevice", ctypes.byref(before))
        self.use(device)
        try:
            yield
        finally:
            self.use(before.value)

    def open_stream(self) -> int:
        """Create a stream that does not wait for other streams."""
        return self._create("cudaStreamCreateWithFlags", _NON_BLOCKING_STREAM)

    def close_stream(self, stream: int) -> None:
        self._call("cudaStreamDestroy", ctypes.c_void_p(stream))

    def allocate(self, size: int) -> int:
        return self._create("cudaMalloc", ctypes.c_size_t(size))

    def free(self, memory: int) -> None:
        self._call("cudaFree", ctypes.c_void_p(memory))

    def pin(self, size: int) -> int:
        return self._create("cudaHostAlloc", ctypes.c_size_t(size), ctypes.c_uint(0))

    def unpin(self, memory: int) -> None:
        self._call("cudaFreeHost", ctypes.c_void_p(memory))

    def copy(self, to: int, source: int, size: int, stream: int) -> None:
        """Enqueue a copy between the device and pinned memory, in either direction."""
        self._check(self._copy(to, source, size, _ANY_DIRECTION, stream), "cudaMemcpyAsync")

    def wait(self, stream: int) -> None:
        """Wait until a stream has completed its work, with the GIL released."""
        self._call("cudaStreamSynchronize", ctypes.c_void_p(stream))

    def _create(self, call: str, *arguments: Any) -> int:  # noqa: ANN401 - of ctypes
        created = ctypes.c_void_p()
        self._call(call, ctypes.byref(created), *arguments)
        return created.value or 0

    def _call(self, call: str, *arguments: Any) -> None:  # noqa: ANN401
        self._check(getattr(self._calls, call)(*arguments), call)

    def _check(self, code: int, call: str) -> None:
        if code:
            # Otherwise onnxruntime would report it for this thread's next kernel.
            self._calls.cudaGetLastError()
            raise CudaError(code, self.name(code), call)


class CaptureLock:
    """Keeps captures of CUDA graphs apart from the calls that would break them.

    During a capture CUDA forbids some calls to all threads of the process, on any GPU: to allocate
    or free memory, to copy without a stream, and to synchronise a device. Such a call and the
    capture fail. Copies of pinned memory and replays are allowed, as they use a separate stream.
    """

    def __init__(self) -> None:
        # A capture holds its lock; calls only increment the count.
        self._changed = threading.Condition(threading.Lock())
        self._captures_waiting = 0
        self._calls = 0

    @contextmanager
    def capture(self) -> Iterator[None]:
        """Hold the lock exclusively, for a capture."""
        with self._changed:
            self._captures_waiting += 1
            try:
                self._changed.wait_for(lambda: not self._calls)
            finally:
                self._captures_waiting -= 1
            try:
                yield
            finally:
                self._changed.notify_all()

    @contextmanager
    def call(self) -> Iterator[None]:
        """Share the lock for calls, not recursively on a thread; captures come first."""
        with self._changed:
            self._changed.wait_for(lambda: not self._captures_waiting)
            self._calls += 1
        try:
            yield
        finally:
            with self._changed:
                self._calls -= 1
                self._changed.notify_all()


class Device:
    """A GPU; `number` is its index among the visible ones (`CUDA_VISIBLE_DEVICES`)."""

    def __init__(self, number: int, library: Library, capture_lock: CaptureLock) -> None:
        self.number = number
        self.library = library
        self.capture_lock = capture_lock
        # Why no run can succeed in this process any more; None while the device works.
        self.lost: str | None = None

    def failure(self, error: Exception) -> ServiceError:
        """The error for a failed call; tests the device under the lock, and marks it as lost."""
        if self.lost is None and (self._code(error) in _STICKY or self._refuses_calls()):
            # The first line, without the place in onnxruntime's source and the host's name.
            reason = (str(error) or type(error).__name__).splitlines()[0].partition(" ; ")[0]
            self.lost = f"GPU {self.number} is lost: {reason}"
            _logger.error("%s", self.lost)
        if self.lost is not None:
            return DeviceLostError(self.lost)
        return ModelFailedError("onnxruntime could not run the model")

    def _code(self, error: Exception) -> int | None:
        """The `cudaError_t` of an error, if it is known."""
        if isinstance(error, CudaError):
            return error.code
        text = str(error)
        if number := _NUMBER.search(text):
            return int(number[1])
        if name := _NAME.search(text):
            return next((code for code in _STICKY if self.library.name(code) == name[0]), None)
        return None

    def _refuses_calls(self) -> bool:
        """Whether every call fails, as after a sticky error."""
        try:
            with self.capture_lock.call(), self.library.using(self.number):
                self.library.free(self.library.allocate(1))
        except CudaError as error:
            return error.code not in _PASSING
        return False
