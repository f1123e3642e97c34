"""One GPU of this process, and whether it still works."""

from __future__ import annotations

import logging
import re

from foretell.service.cuda.exclusion import Exclusion
from foretell.service.cuda.library import CudaError, Library
from foretell.service.errors import DeviceLostError, ModelFailedError, ServiceError

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
        if self.lost is None and self._is_fatal(error):
            self.lost = f"GPU {self.number} is lost: {_reason(error)}"
            _logger.error("%s", self.lost)
        if self.lost is not None:
            return DeviceLostError(self.lost)
        return ModelFailedError("onnxruntime could not run the model")

    def _is_fatal(self, error: Exception) -> bool:
        return self._code(error) in _STICKY or self._is_gone()

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
