"""A run whose model has to come into memory first."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import CancelledError, Future, InvalidStateError
from contextlib import suppress

from foretell.service.arrays import Arrays
from foretell.service.engine.registry import Loaded, Pending
from foretell.service.engine.run import own_error
from foretell.service.errors import NotReadyError


class Waiting(Future[Arrays]):
    """A `registry.Pending` that waits for its model, and then is the run of that model.

    Args:
        feeds: `[windows, …]` by input name.
        attention: Names of the attention outputs that are wanted.
        deadline: On the clock of `time.monotonic`.

    Attributes:
        windows: How many it has.
        bytes: What it holds while it waits.
        loading: Seconds that it waited for its model, once it runs.
    """

    def __init__(self, feeds: Arrays, attention: Sequence[str], deadline: float) -> None:
        super().__init__()
        self._feeds = feeds
        self._attention = attention
        self._deadline = deadline
        self._run: Pending | None = None
        self.windows = len(next(iter(feeds.values())))
        self.bytes = sum(rows.nbytes for rows in feeds.values())
        self.asked = self.submitted = time.monotonic()
        self.began = self.ended = self.loading = 0.0
        self.batch = 0

    def start(self, model: Loaded) -> bool:
        """Have the model run it, unless it is over; says whether the model still takes runs."""
        if self.done():
            return True
        try:
            run = model.submit(
                self._feeds, attention=self._attention, deadline=self._deadline, admitted=True
            )
        except NotReadyError:
            return False
        except Exception as error:
            self.fail(error)
            return True
        self._run, self._feeds = run, {}
        self.loading = time.monotonic() - self.asked
        run.add_done_callback(self._finish)
        if self.cancelled():
            run.cancel()
        return True

    def cancel(self) -> bool:
        """See `Pending.cancel`."""
        cancelled = super().cancel()
        # Whoever starts it meanwhile sees that, or is seen here.
        if self._run is not None:
            self._run.cancel()
        self._feeds = {}
        return cancelled

    def fail(self, error: Exception) -> None:
        """It is not run, unless it is over."""
        self._feeds = {}
        with suppress(InvalidStateError):
            self.set_exception(own_error(error))

    def _finish(self, run: Pending) -> None:
        self.submitted, self.began, self.ended = run.submitted, run.began, run.ended
        self.batch = run.batch
        try:
            outputs = run.result()
        except CancelledError:
            super().cancel()
        except Exception as error:
            self.fail(error)
        else:
            with suppress(InvalidStateError):
                self.set_result(outputs)
