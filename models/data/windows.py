"""All windows of some rows of a panel."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from foretell.bundle.calendar import Calendar
from foretell.bundle.manifest import Scaler
from foretell.models.data.errors import DataError
from foretell.models.data.panel import Panel
from foretell.models.data.scaler import standardise
from foretell.models.data.splits import Span

if TYPE_CHECKING:
    from foretell.models.forecaster import ForecasterConfig


class Batch(NamedTuple):
    """One window, or several with a batch axis in front.

    Attributes:
        history: `[batch, context, channels]`, standardised.
        history_calendar: `[batch, context, features]`, or None without a calendar.
        future_calendar: `[batch, horizon, features]`, likewise.
        target: `[batch, horizon, targets]`, standardised: what is to be forecast.
        future: `[batch, horizon, channels]`, standardised: all that followed.
    """

    history: Tensor
    history_calendar: Tensor | None
    future_calendar: Tensor | None
    target: Tensor
    future: Tensor


class Windows(Dataset[Batch]):
    """Every window of context and horizon within any of the spans, none dropped.

    The rows are kept once, in float32; windows are cut out of them on access. So memory grows with
    rows, and not with windows.
    """

    def __init__(
        self,
        panel: Panel,
        spans: Iterable[Span],
        context: int,
        horizon: int,
        scaler: Scaler,
        calendar: Calendar | None = None,
        targets: Sequence[int] | None = None,
    ) -> None:
        """Standardise the rows and encode their timestamps.

        Args:
            panel: The series.
            spans: Rows of its tables; those too short for a window have none.
            context: Steps of history.
            horizon: Steps of target.
            scaler: Of the training rows.
            calendar: Calendar features to give, or None.
            targets: Places of the channels that are to be forecast; all of them if None.

        Raises:
            DataError: no span holds a window.
        """
        spans = [span for span in spans if span.windows(context, horizon)]
        if not spans:
            raise DataError(f"no window of context {context} and horizon {horizon}")
        self.context = context
        self.horizon = horizon
        self.targets = slice(None) if targets is None else [*targets]
        counts = [0, *(span.windows(context, horizon) for span in spans)]
        ends = np.cumsum([span.end - span.start for span in spans])
        values = np.empty((ends[-1], len(panel.channels)), np.float32)
        for (table, start, end), last in zip(spans, ends, strict=True):
            values[last - (end - start) : last] = standardise(
                panel.tables[table].values[start:end], scaler
            )
        self.values = torch.from_numpy(values)
        self.calendar = None
        if calendar is not None:
            times = [panel.tables[table].timestamps[start:end] for table, start, end in spans]
            self.calendar = torch.from_numpy(calendar.encode(np.concatenate(times)))
        self._spans = spans
        self._count = sum(counts)
        # The first window of each span. Each span has so many fewer windows than rows.
        self._firsts = torch.from_numpy(np.cumsum(counts)[:-1])
        self._fewer = context + horizon - 1
        self._steps = torch.arange(context + horizon)

    @classmethod
    def of(
        cls, config: ForecasterConfig, panel: Panel, spans: Iterable[Span], scaler: Scaler
    ) -> Self:
        """Those that a model of a config reads and forecasts; arguments and errors as above."""
        return cls(
            panel, spans, config.context, config.horizon, scaler, config.calendar, config.targets
        )

    def to(self, device: torch.device) -> Windows:
        """Move the rows to a device; windows are then cut out there."""
        self.values = self.values.to(device)
        self.calendar = None if self.calendar is None else self.calendar.to(device)
        self._firsts = self._firsts.to(device)
        self._steps = self._steps.to(device)
        return self

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> Batch:
        if not 0 <= index < len(self):
            raise IndexError(f"window {index} of {len(self)}")
        return self._cut(self._first_row(torch.tensor(index)) + self._steps)

    def batch(self, indices: Tensor) -> Batch:
        """The windows at `indices` `[batch]` (int64)."""
        return self._cut(self._first_row(indices)[:, None] + self._steps)

    def batches(self, size: int) -> Iterator[Batch]:
        """All windows in order, `size` at a time; the last batch may be smaller."""
        for start in range(0, len(self), size):
            yield self.batch(torch.arange(start, min(start + size, len(self))))

    def span(self, index: int) -> Span:
        """Where the rows of a window lie in the panel."""
        place = int(torch.searchsorted(self._firsts, index, right=True)) - 1
        table, start, _ = self._spans[place]
        first = start + index - int(self._firsts[place])
        return Span(table, first, first + self.context + self.horizon)

    def _first_row(self, indices: Tensor) -> Tensor:
        indices = indices.to(self._steps.device)
        spans = torch.searchsorted(self._firsts, indices, right=True) - 1
        return indices + spans * self._fewer

    def _cut(self, rows: Tensor) -> Batch:
        history, future = self._split(self.values[rows])
        target = future[..., self.targets]
        if self.calendar is None:
            return Batch(history, None, None, target, future)
        return Batch(history, *self._split(self.calendar[rows]), target, future)

    def _split(self, steps: Tensor) -> tuple[Tensor, Tensor]:
        return steps[..., : self.context, :], steps[..., self.context :, :]
