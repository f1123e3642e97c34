"""The place of a process in a server of several."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from prometheus_client.multiprocess import mark_process_dead


@dataclass(frozen=True)
class Member:
    """One of the processes that share a folder.

    Attributes:
        folder: Of this server alone.
        slot: The process's number, from 0; whoever takes the place of one that died has the same.
    """

    folder: Path
    slot: int

    @property
    def metrics(self) -> Path:
        """The folder of all processes' metrics."""
        return self._shared("metrics")

    @property
    def state(self) -> Path:
        """The folder in which they agree on the models."""
        return self._shared("state")

    @property
    def readiness(self) -> Path:
        """The file in which this one says whether it can answer; the others' are next to it."""
        return self._shared("readiness") / f"{self.slot}.json"

    @property
    def statistics(self) -> Path:
        """The file in which this one says what it has counted; the others' are next to it."""
        return self._shared("statistics") / f"{self.slot}.json"

    def forget(self) -> None:
        """The process has ended: what it was no longer counts, what it did still does."""
        mark_process_dead(self.slot, str(self.metrics))  # type: ignore[no-untyped-call]
        self.readiness.unlink(missing_ok=True)

    def _shared(self, name: str) -> Path:
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        return folder
