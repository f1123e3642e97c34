"""How much may wait in a queue, and when it is worth asking again."""

from __future__ import annotations

import math
from collections.abc import Callable

from foretell.service.errors import QueueFullError, TooLargeError

_LONGEST_RETRY = 60
_GRACE_SECONDS = 2.0


class Room:
    """The room of a queue, in windows and in bytes.

    When work is refused, what it needs is kept free of smaller work until it has had time to come
    again: they would take every place as it gets free. At most half of the room is kept, so that
    they are not shut out either.

    Args:
        max_windows: Most windows waiting.
        max_bytes: Most bytes held by work that has not ended.

    Attributes:
        windows: Windows waiting.
        bytes: Bytes held.
    """

    def __init__(self, max_windows: int, max_bytes: int) -> None:
        self._max_windows = max_windows
        self._max_bytes = max_bytes
        self.windows = 0
        self.bytes = 0
        self._kept_windows = 0
        self._kept_bytes = 0
        self._kept_until = -math.inf

    def admit(self, windows: int, size: int, now: float, drain: Callable[[], float]) -> None:
        """Make sure that work fits.

        Args:
            windows: How many it has.
            size: Their bytes.
            now: On the clock of `time.monotonic`.
            drain: Seconds until all that waits has run.

        Raises:
            QueueFullError: it does not.
            TooLargeError: it could not even if nothing waited.
        """
        if windows > self._max_windows or size > self._max_bytes:
            raise TooLargeError(
                f"expected at most {self._max_windows} windows that hold {self._max_bytes} bytes, "
                f"got {windows} that hold {size}: these could never wait for the model together"
            )
        if windows < self._kept_windows and now < self._kept_until:
            self._check(windows, size, self._kept_windows, self._kept_bytes, drain)
            return
        self._kept_windows = 0
        try:
            self._check(windows, size, 0, 0, drain)
        except QueueFullError as error:
            self._kept_windows = min(windows, self._max_windows // 2)
            self._kept_bytes = min(size, self._max_bytes // 2)
            self._kept_until = now + error.retry_after + _GRACE_SECONDS
            raise

    def check(self, drain: Callable[[], float]) -> None:
        """Find out early whether any work may fit.

        Raises:
            QueueFullError: not even one window does.
        """
        self._check(1, 1, 0, 0, drain)

    def _check(
        self, windows: int, size: int, kept: int, kept_bytes: int, drain: Callable[[], float]
    ) -> None:
        over = self.windows + windows + kept - self._max_windows
        over_bytes = self.bytes + size + kept_bytes - self._max_bytes
        if over <= 0 and over_bytes <= 0:
            return
        if over > 0:
            said = (
                f"{self.windows} windows are waiting and {windows} more do not fit: "
                f"at most {self._max_windows} may wait"
            )
        else:
            said = (
                f"what is waiting or running holds {self.bytes} bytes and {size} more do not fit: "
                f"at most {self._max_bytes} may be held"
            )
        if kept:
            said += ", and larger work was refused before"
        # What must go first, as a part of all that is there.
        part = max(over / max(1, self.windows), over_bytes / max(1, self.bytes))
        seconds = math.ceil(min(part, 1.0) * drain())
        raise QueueFullError(said, retry_after=min(max(seconds, 1), _LONGEST_RETRY))
