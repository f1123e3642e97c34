"""All windows of a range of rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor
from torch.utils.data import Dataset

from foretell.bundle.calendar import Calendar
from foretell.bundle.manifest import Scaler
from foretell.models.data.errors import DataError
from foretell.models.data.scaler import standardise
from foretell.models.data.splits import Rows
from foretell.models.data.table import Table


class Batch(NamedTuple):
    """One window, or several with a batch axis in front.

    Attributes:
        history: `[batch, context, channels]`, standardised.
        history_calendar: `[batch, context, features]`, or None without a calendar.
        future_calendar: `[batch, horizon, features]`, likewise.
        target: `[batch, horizon, channels]`, standardised.
    """

    history: Tensor
    history_calendar: Tensor | None
    future_calendar: Tensor | None
    target: Tensor


class Windows(Dataset[Batch]):
    """Every window of context and horizon in a range of rows, none dropped.

    The rows are kept once, in float32; windows are cut out of them on access.
    """

    def __init__(
        self,
        table: Table,
        rows: Rows,
        context: int,
        horizon: int,
        scaler: Scaler,
        calendar: Calendar | None = None,
    ) -> None:
        """Standardise the rows and encode their timestamps.

        Args:
            table: The series.
            rows: First row, and the row after the last.
            context: Steps of history.
            horizon: Steps of target.
            scaler: Of the training rows.
            calendar: Calendar features to give, or None.

        Raises:
            DataError: the rows hold no window.
        """
        start, end = rows
        if not 0 <= start <= end - context - horizon <= len(table) - context - horizon:
            raise DataError(
                f"rows {start} to {end} of {len(table)} hold no window of context {context} and "
                f"horizon {horizon}"
            )
        self.context = context
        self.horizon = horizon
        self.values = torch.from_numpy(standardise(table.values[start:end], scaler))
        self.calendar = (
            torch.from_numpy(calendar.encode(table.timestamps[start:end])) if calendar else None
        )
        self._steps = torch.arange(context + horizon)

    def to(self, device: torch.device) -> Windows:
        """Move the rows to a device; windows are then cut out there."""
        self.values = self.values.to(device)
        self.calendar = None if self.calendar is None else self.calendar.to(device)
        self._steps = self._steps.to(device)
        return self

    def __len__(self) -> int:
        return len(self.values) - self.context - self.horizon + 1

    def __getitem__(self, index: int) -> Batch:
        if not 0 <= index < len(self):
            raise IndexError(f"window {index} of {len(self)}")
        return self._cut(index + self._steps)

    def batch(self, indices: Tensor) -> Batch:
        """The windows at `indices` `[batch]` (int64)."""
        return self._cut(indices.to(self._steps.device)[:, None] + self._steps)

    def batches(self, size: int) -> Iterator[Batch]:
        """All windows in order, `size` at a time; the last batch may be smaller."""
        for start in range(0, len(self), size):
            yield self.batch(torch.arange(start, min(start + size, len(self))))

    def _cut(self, rows: Tensor) -> Batch:
        history, target = self._split(self.values[rows])
        if self.calendar is None:
            return Batch(history, None, None, target)
        return Batch(history, *self._split(self.calendar[rows]), target)

    def _split(self, steps: Tensor) -> tuple[Tensor, Tensor]:
        return steps[..., : self.context, :], steps[..., self.context :, :]
