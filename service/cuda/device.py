"""One GPU of this process, and whether it still works."""

from __future__ import annotations

import logging
import re

from service.cuda.exclusion import Exclusion
from service.cuda.library import CudaError, Library
from service.errors import DeviceLostError, ModelFailedError, ServiceError

_logger = logging.getLogger(__name__)

# Errors after which CUDA says that the process must be ended and started again: uncorrectable and
# contained errors of memory and links, illegal addresses and instructions, launches that failed or
# took too long, and those of which nothing is known.
_STICKY = frozenset({214, 220, 226, 700, 702, 709, 710, *range(714, 720), 721, 999})
_OUT_OF_MEMORY = 2
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
            self.lost = f"GPU {self.number} is lost: {_first_line(error)}"
            _logger.error("%s", self.lost)
        if self.lost is not None:
            return DeviceLostError(self.lost)
        return ModelFailedError("onnxruntime could not run the model")

    def _is_fatal(self, error: Exception) -> bool:
        code = self._code(error)
        return code in _STICKY or (code is None and self._is_gone())

    def _code(self, error: Exception) -> int | None:
        """The `cudaError_t` behind an error; None if it does not say."""
        if isinstance(error, CudaError):
            return error.code
        text = str(error)
        if found := _NUMBER.search(text):
            return int(found[1])
        if found := _NAME.search(text):
            sticky = (code for code in _STICKY if self.library.name(code) == found[0])
            return next(sticky, 0)
        return None

    def _is_gone(self) -> bool:
        """Whether the device refuses everything, as one does after a sticky error."""
        try:
            with self.exclusion.call():
                self.library.use(self.number)
                self.library.free(self.library.allocate(1))
        except CudaError as error:
            return error.code != _OUT_OF_MEMORY
        return False


def _first_line(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]
