"""What NVIDIA's driver says, asked without any CUDA library."""

from __future__ import annotations

import ctypes

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
