"""What a queue tells about its work."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol

_logger = logging.getLogger(__name__)


class Observer(Protocol):
    """Told from whichever thread it happens in, mostly the workers', which wait meanwhile."""

    def waited(self, seconds: float) -> None:
        """Work went from the queue into its first batch."""

    def assembled(self, seconds: float) -> None:
        """The feeds of a batch were put together."""

    def ran(self, windows: int, seconds: float) -> None:
        """A batch was run."""

    def filled(self, fraction: float) -> None:
        """That batch was so full, of the largest one that its graph may have."""

    def expired(self) -> None:
        """Work was dropped that waited, or part of it, when its deadline passed."""

    def cancelled(self) -> None:
        """Work was dropped that waited, or part of it, when its caller gave it up."""


class Observers:
    """Several observers as one.

    Args:
        observers: All are told the same.
    """

    def __init__(self, *observers: Observer) -> None:
        self._observers = observers

    def waited(self, seconds: float) -> None:
        """See `Observer`."""
        for observer in self._observers:
            observer.waited(seconds)

    def assembled(self, seconds: float) -> None:
        """See `Observer`."""
        for observer in self._observers:
            observer.assembled(seconds)

    def ran(self, windows: int, seconds: float) -> None:
        """See `Observer`."""
        for observer in self._observers:
            observer.ran(windows, seconds)

    def filled(self, fraction: float) -> None:
        """See `Observer`."""
        for observer in self._observers:
            observer.filled(fraction)

    def expired(self) -> None:
        """See `Observer`."""
        for observer in self._observers:
            observer.expired()

    def cancelled(self) -> None:
        """See `Observer`."""
        for observer in self._observers:
            observer.cancelled()


def tell(method: Callable[..., None], *values: float) -> None:
    """Call a method of an observer; one that fails costs a line in the log, and no answer."""
    try:
        method(*values)
    except Exception:
        _logger.exception("a queue's observer failed")
