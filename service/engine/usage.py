"""Limits of a queue, its usage, and the callbacks for what happens to its runs."""

from __future__ import annotations

from typing import Literal, NamedTuple, Protocol


class Limits(NamedTuple):
    """Most windows of a batch, most waiting windows, and most bytes of runs that have not ended."""

    batch: int
    windows: int
    bytes: int


class Usage(NamedTuple):
    """Waiting windows, and bytes of the runs that wait or are run; with the limits of both."""

    windows: int
    most_windows: int
    bytes: int
    most_bytes: int


class Observer(Protocol):
    """Callbacks for the runs of a queue, mostly called on an inference thread."""

    def ran(self, windows: int, limit: int, assembled: float, ran: float) -> None:
        """A batch of at most `limit` windows ran; its seconds to assemble and to run."""

    def ran_in_background(self, seconds: float) -> None:
        """A batch ran in the background; its seconds to assemble and to run."""

    def dropped(self, reason: Literal["expired", "cancelled"]) -> None:
        """A run, or part of it, left the queue without being run."""

    def changed(self) -> None:
        """The model has failed, or works again."""
