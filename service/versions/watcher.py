"""A thread that looks again and again."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

_logger = logging.getLogger(__name__)


class Watcher:
    """Calls a function every so many seconds, until it is stopped.

    It asks rather than being told: file systems of other machines tell nobody of changes, and a
    look at a repository costs the reading of one small file a version.

    Args:
        look: Called from the thread; what it raises is logged, and it is called again.
        seconds: Between the end of a call and the next.
        name: The thread's.
    """

    def __init__(self, look: Callable[[], None], seconds: float, name: str) -> None:
        self._look = look
        self._seconds = seconds
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch, name=name, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Look no more."""
        self._stopped.set()

    def join(self, timeout: float) -> None:
        """Wait for a look that is going on, as Python's exit aborts a thread in onnxruntime."""
        self._thread.join(timeout)

    def _watch(self) -> None:
        said = ""
        while not self._stopped.wait(self._seconds):
            try:
                self._look()
                said = ""
            except Exception as error:
                # Not again and again: what is wrong may stay so for days.
                if str(error) != said:
                    _logger.exception("%s failed; it is tried again", self._thread.name)
                said = str(error)
