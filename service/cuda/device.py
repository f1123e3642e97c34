"""One GPU of this process: CUDA's library, whether it works, and what excludes what on it."""

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

# What onnxruntime's CUDA provider is linked with, each after those it needs itself. Its own
# preloading takes along cuFFT and nvrtc, which no exported graph needs.
_LINKED = ("libcudart.so.{}", "libcublasLt.so.{}", "libcublas.so.{}", "libcurand.so.10")
_NON_BLOCKING_STREAM = 1
_OWN_CAPTURES = 1
_ANY_DIRECTION = 4


class CudaError(Exception):
    """A call of the CUDA runtime failed.

    Args:
        code: Its `cudaError_t`.
        name: The same as a word.
        call: What was called.

    Attributes:
        code: See above.
    """

    def __init__(self, code: int, name: str, call: str) -> None:
        super().__init__(f"CUDA error {name} ({code}) in {call}")
        self.code = code


def preload(major: str) -> None:
    """Load CUDA's libraries from their wheels, or where the system has them.

    Args:
        major: The major version of CUDA that onnxruntime was built for.

    Raises:
        OSError: one is missing; the message names it.
    """
    wheels = find_spec("nvidia")
    roots = wheels.submodule_search_locations if wheels is not None else None
    for pattern in _LINKED:
        name = pattern.format(major)
        places = [Path(root) / f"cu{major}" / "lib" / name for root in roots or ()]
        ctypes.CDLL(next((str(place) for place in places if place.exists()), name))


class Library:
    """`libcudart`, the very one that onnxruntime is linked with.

    Addresses and streams are whole numbers. Calls are about the device that the calling thread
    uses, and raise `CudaError`.

    Args:
        major: As for `preload`.
    """

    def __init__(self, major: str) -> None:
        name = f"libcudart.so.{major}"
        self._calls = ctypes.CDLL(name)
        self._name = self._calls.cudaGetErrorName
        self._name.restype = ctypes.c_char_p
        # It hands something over and is done. To let go of Python's lock meanwhile would take
        # longer than that, and to get it back from a busy thread a thousand times as long.
        self._copy = ctypes.PyDLL(name).cudaMemcpyAsync
        address, size, number = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
        self._copy.argtypes = (address, address, size, number, address)

    def name(self, code: int) -> str:
        """The name of a `cudaError_t`, such as `cudaErrorIllegalAddress`."""
        found: bytes = self._name(code)
        return found.decode()

    def use(self, device: int) -> None:
        """Have the calling thread use a device from here on.

        Nor do its calls break the captures of other threads: that is for `Exclusion` to see to.
        """
        self._call("cudaSetDevice", device)
        # The stand-in of the tests has none.
        exchange = getattr(self._calls, "cudaThreadExchangeStreamCaptureMode", None)
        if exchange is not None:
            self._check(exchange(ctypes.byref(ctypes.c_int(_OWN_CAPTURES))), exchange.__name__)

    @contextmanager
    def using(self, device: int) -> Iterator[None]:
        """Have the calling thread use a device, and then the one that it used before."""
        before = ctypes.c_int()
        self._call("cudaGetDevice", ctypes.byref(before))
        self.use(device)
        try:
            yield
        finally:
            self.use(before.value)

    def open_stream(self) -> int:
        """A stream that waits for no other."""
        return self._made("cudaStreamCreateWithFlags", _NON_BLOCKING_STREAM)

    def close_stream(self, stream: int) -> None:
        """The end of a stream."""
        self._call("cudaStreamDestroy", ctypes.c_void_p(stream))

    def allocate(self, size: int) -> int:
        """So many bytes of the device's memory."""
        return self._made("cudaMalloc", ctypes.c_size_t(size))

    def free(self, memory: int) -> None:
        """Give memory of the device back."""
        self._call("cudaFree", ctypes.c_void_p(memory))

    def pin(self, size: int) -> int:
        """So many bytes of the host's memory, which stay where they are: a GPU can copy them."""
        return self._made("cudaHostAlloc", ctypes.c_size_t(size), ctypes.c_uint(0))

    def unpin(self, memory: int) -> None:
        """Give pinned memory back."""
        self._call("cudaFreeHost", ctypes.c_void_p(memory))

    def copy(self, to: int, source: int, size: int, stream: int) -> None:
        """Have a stream copy between the device and pinned memory, whichever is which."""
        self._check(self._copy(to, source, size, _ANY_DIRECTION, stream), "cudaMemcpyAsync")

    def wait(self, stream: int) -> None:
        """Wait for all that a stream was given; other threads go on."""
        self._call("cudaStreamSynchronize", ctypes.c_void_p(stream))

    def _made(self, call: str, *arguments: Any) -> int:  # noqa: ANN401 - of ctypes
        """What a call puts where its first argument points."""
        made = ctypes.c_void_p()
        self._call(call, ctypes.byref(made), *arguments)
        return made.value or 0

    def _call(self, call: str, *arguments: Any) -> None:  # noqa: ANN401
        self._check(getattr(self._calls, call)(*arguments), call)

    def _check(self, code: int, call: str) -> None:
        if code:
            # Or onnxruntime would take it for an error of the next kernel that this thread starts.
            self._calls.cudaGetLastError()
            raise CudaError(code, self.name(code), call)


_DRIVER = "libcuda.so.1"


def gpu_count(driver: str = _DRIVER) -> int:
    """GPUs that this process may use (`CUDA_VISIBLE_DEVICES`); 0 without a driver.

    Args:
        driver: The driver's library.
    """
    try:
        library = ctypes.CDLL(driver)
    except OSError:
        return 0
    count = ctypes.c_int()
    if library.cuInit(0) or library.cuDeviceGetCount(ctypes.byref(count)):
        return 0
    return count.value


class Exclusion:
    """Keeps captures of CUDA graphs away from the calls that would break them.

    While onnxruntime captures, CUDA forbids every thread of the process, whichever GPU it uses, to
    allocate or free memory, to copy without a stream, and to wait for a GPU as a whole; who does so
    all the same gets an error, and so does the capture. What goes to a stream of its own may go on:
    copies of pinned memory and replays.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._capturing = False
        self._captures_waiting = 0
        self._calls = 0

    @contextmanager
    def capture(self) -> Iterator[None]:
        """Around a capture: there is one at a time, and no call."""
        with self._changed:
            self._captures_waiting += 1
            try:
                self._changed.wait_for(lambda: not self._capturing and not self._calls)
            finally:
                self._captures_waiting -= 1
            self._capturing = True
        try:
            yield
        finally:
            with self._changed:
                self._capturing = False
                self._changed.notify_all()

    @contextmanager
    def call(self) -> Iterator[None]:
        """Around what a capture forbids, once on a thread; captures that wait come first."""
        with self._changed:
            self._changed.wait_for(lambda: not self._capturing and not self._captures_waiting)
            self._calls += 1
        try:
            yield
        finally:
            with self._changed:
                self._calls -= 1
                self._changed.notify_all()


_logger = logging.getLogger(__name__)

# Errors after which CUDA says that the process must be ended and started again: uncorrectable and
# contained errors of memory and links, illegal addresses and instructions, launches that failed or
# took too long, the end of MPS, and those of which nothing is known.
_STICKY = frozenset({214, 220, 226, 700, 702, 709, 710, *range(714, 720), 721, 810, 999})
# What a device that works may say all the same: that it is full, or that a capture goes on.
_PASSING = frozenset({2, *range(900, 909)})
# onnxruntime tells errors of calls by their number, and those of kernels by their name.
_NUMBER = re.compile(r"CUDA failure (\d+)")
_NAME = re.compile(r"\bcudaError\w+")


class Device:
    """A GPU.

    Args:
        number: Its number among those that the process may use (`CUDA_VISIBLE_DEVICES`).
        library: Of CUDA.
        exclusion: Of the process.

    Attributes:
        number: See above.
        library: See above.
        exclusion: See above.
        lost: Why no run can go well any more in this process, if so.
    """

    def __init__(self, number: int, library: Library, exclusion: Exclusion) -> None:
        self.number = number
        self.library = library
        self.exclusion = exclusion
        self.lost: str | None = None

    def failed(self, error: Exception) -> ServiceError:
        """What callers are told of work that failed here; finds out whether the device is lost.

        Not to be called within `exclusion`.
        """
        if self.lost is None and (self._code(error) in _STICKY or self._is_gone()):
            self.lost = f"GPU {self.number} is lost: {_reason(error)}"
            _logger.error("%s", self.lost)
        if self.lost is not None:
            return DeviceLostError(self.lost)
        return ModelFailedError("onnxruntime could not run the model")

    def _code(self, error: Exception) -> int | None:
        """The `cudaError_t` behind an error; None if it names none, or one of no use here."""
        if isinstance(error, CudaError):
            return error.code
        text = str(error)
        if found := _NUMBER.search(text):
            return int(found[1])
        if found := _NAME.search(text):
            return next((code for code in _STICKY if self.library.name(code) == found[0]), None)
        return None

    def _is_gone(self) -> bool:
        """Whether the device refuses everything, as one does after a sticky error."""
        try:
            with self.exclusion.call(), self.library.using(self.number):
                self.library.free(self.library.allocate(1))
        except CudaError as error:
            return error.code not in _PASSING
        return False


def _reason(error: Exception) -> str:
    """The first line, less where in onnxruntime's source and on which host it happened."""
    return (str(error) or type(error).__name__).splitlines()[0].partition(" ; ")[0]
