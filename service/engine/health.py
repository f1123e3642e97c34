"""Whether the engine of a process still works, and the end of a process that cannot end cleanly."""

from __future__ import annotations

import logging
import os

from foretell.service.engine.engine import LocalEngine
from foretell.service.engine.repository import Repository

_logger = logging.getLogger(__name__)

# Exit status of a process that should be replaced: `EX_TEMPFAIL`.
REPLACE_ME = 75


def end(engine: LocalEngine, status: int) -> None:
    """End this process here, with a status, if Python could not end it cleanly."""
    # A load or a run in progress cannot be interrupted: Python would wait for it, or abort inside
    # onnxruntime. After the loss of a GPU CUDA cannot be closed.
    if engine.changing or engine.repository.going or engine.repository.lost:
        logging.shutdown()
        os._exit(status)


class HealthMonitor:
    """Whether the engine of this process still works.

    After the loss of a GPU it goes on for `grace_seconds` with the others. No batch or capture
    takes `stuck_seconds`.
    """

    def __init__(self, repository: Repository, grace_seconds: float, stuck_seconds: float) -> None:
        self._repository = repository
        self._grace_seconds = grace_seconds
        self._stuck_seconds = stuck_seconds
        self._lost_at: float | None = None

    @property
    def stuck(self) -> bool:
        """Whether an inference thread hangs in a batch or call."""
        return self._repository.busy_seconds > self._stuck_seconds

    def is_over(self, now: float) -> bool:
        """Whether to end because of a lost GPU, which only a new process gets back."""
        if not self._repository.lost:
            return False
        if self._lost_at is None:
            self._lost_at = now
            # While other GPUs go on answering, load balancers have time to look at `/readyz`.
            seconds = 0 if self._repository.dead else self._grace_seconds
            _logger.error(
                "the process ends in %d s with status %d, and must be replaced", seconds, REPLACE_ME
            )
        return self._repository.dead or now - self._lost_at >= self._grace_seconds
