"""A mapped file without an open descriptor; Python's `mmap` keeps one open."""

from __future__ import annotations

import ctypes
import os
from mmap import MADV_DONTNEED, MAP_PRIVATE, PROT_READ
from weakref import finalize

import numpy as np

_library = ctypes.CDLL(None, use_errno=True)
_map = _library.mmap
_map.restype = ctypes.c_void_p
_map.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
_advise, _unmap = _library.madvise, _library.munmap
_advise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
_unmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_FAILED = ctypes.c_void_p(-1).value


class Mapping:
    """The content of a file, until this object and all its views are gone.

    Args:
        descriptor: Descriptor of a file that is not empty; the caller may close it afterwards.

    Raises:
        OSError: the file cannot be mapped.
    """

    def __init__(self, descriptor: int) -> None:
        self._size = os.fstat(descriptor).st_size
        address = _map(None, self._size, PROT_READ, MAP_PRIVATE, descriptor, 0)
        if address == _FAILED:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        self._address = address
        finalize(self, _unmap, address, self._size).atexit = False

    @property
    def __array_interface__(self) -> dict[str, object]:
        data = (self._address, True)
        return {"version": 3, "typestr": "|u1", "shape": (self._size,), "data": data}

    def view(self) -> memoryview:
        """A view of the content, without a copy."""
        return np.asarray(self).data

    def rest(self) -> None:
        """Release the pages that were read, so that they do not count as this process's memory."""
        _advise(self._address, self._size, MADV_DONTNEED)
