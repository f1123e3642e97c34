"""A call that a worker makes between its batches."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future

from foretell.service.errors import DeviceLostError


class Call(Future[None]):
    """A function to be called with the worker's index; the future of its end."""

    def __init__(self, function: Callable[[int], None]) -> None:
        super().__init__()
        self._function = function

    def make(self, worker: int) -> str | None:
        """Call it, unless it was cancelled; what it raises is the future's exception.

        Returns:
            Why the worker's device is lost, if that is what it raises.
        """
        if self.set_running_or_notify_cancel():
            try:
                self._function(worker)
            except BaseException as error:
                self.set_exception(error)
                return reason_of_loss(error)
            self.set_result(None)
        return None

    def fail(self, error: Exception) -> None:
        """It will not be called."""
        if self.set_running_or_notify_cancel():
            self.set_exception(error)


def reason_of_loss(error: BaseException) -> str | None:
    """Why a device is lost, if an error says so."""
    return error.message if isinstance(error, DeviceLostError) else None
