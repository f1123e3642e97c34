"""The calls of the CUDA runtime that onnxruntime's Python interface does not have.

https://docs.nvidia.com/cuda/cuda-runtime-api/
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

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
