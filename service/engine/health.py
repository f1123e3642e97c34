"""Whether a model still works, by what its runs say and its self-test."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

_logger = logging.getLogger(__name__)

_FAILURES = 3
_FIRST_SECONDS = 1.0
_LONGEST_SECONDS = 60.0
_TESTS = 12


class Health:
    """Watches the runs of a model; threads may share it.

    Some histories may make a healthy model fail. So failed runs, several in a row, are only a
    suspicion, and the self-test decides. What has failed is tested again, at growing intervals, for
    some minutes.

    Args:
        name: The model's, for the log.
        test: The self-test; it raises if the model does not work.
        first_seconds: From the first test that failed to the second.
    """

    def __init__(
        self, name: str, test: Callable[[], None], *, first_seconds: float = _FIRST_SECONDS
    ) -> None:
        self._name = name
        self._test = test
        self._first_seconds = first_seconds
        self._changing = threading.Lock()
        self._closed = threading.Event()
        self._failures = 0
        self._testing = False
        self._failure: str | None = None

    @property
    def failure(self) -> str | None:
        """Why the model does not work, if so."""
        return self._failure

    def succeeded(self) -> None:
        """A run went well."""
        self._failures = 0

    def failed(self) -> None:
        """A run failed."""
        with self._changing:
            self._failures += 1
            if self._testing or self._failures < _FAILURES:
                return
            self._testing = True
        # Not in the thread of the run, which the self-test may need.
        examiner = threading.Thread(target=self._examine, name=f"test-{self._name}", daemon=True)
        try:
            examiner.start()
        except RuntimeError as reason:
            _logger.error("%s cannot be tested: %s", self._name, reason)
            with self._changing:
                # What nobody tests must not stay down: the next run that fails begins anew.
                self._testing, self._failure = False, None

    def close(self) -> None:
        """Test no more."""
        self._closed.set()

    def _examine(self) -> None:
        """Test until the model works, or enough was tried."""
        wait = 0.0
        for _ in range(_TESTS):
            if self._closed.wait(wait):
                return
            try:
                self._test()
            except Exception as error:
                if self._closed.is_set():
                    return
                with self._changing:
                    self._set_failure(error)
                wait = min(max(2 * wait, self._first_seconds), _LONGEST_SECONDS)
            else:
                self._recover()
                return
        _logger.error("%s has failed and is tested no more", self._name)

    def _recover(self) -> None:
        with self._changing:
            if self._failure is not None:
                _logger.warning("%s works again", self._name)
            self._failure = None
            self._failures = 0
            self._testing = False

    def _set_failure(self, error: Exception) -> None:
        said = f"{error}: {error.__cause__}" if error.__cause__ else str(error)
        if self._failure is None:
            _logger.error("%s has failed: %s", self._name, said)
        self._failure = said
