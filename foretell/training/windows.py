"""Windows of context and horizon in the rows of a panel."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from foretell.bundle.scaler import Scaler
from foretell.data.coding import recoded
from foretell.data.errors import DataError
from foretell.data.panel import Panel
from foretell.data.scaler import standardise
from foretell.data.splits import Span
from foretell.models.inputs import Inputs
from foretell.timeaxis.calendar import Calendar
from foretell.timeaxis.gaps import latest, rows_before

if TYPE_CHECKING:
    from foretell.models.config import ForecasterConfig


# Number of windows that are cut out together to count known targets.
_BATCH = 256


class Batch(NamedTuple):
    """One window, or several with a batch axis in front.

    Attributes:
        inputs: Inputs of the model; the history is standardised.
        target: `[batch, horizon, targets]`, standardised, the values to forecast.
        future: `[batch, horizon, channels]`, standardised, all values that followed.
        known: `[batch, horizon, targets]`, whether a target was known and not filled in; None if
            all are known. It is false for a window whose history lacks all values of a channel,
            since a server refuses such a request.
    """

    inputs: Inputs
    target: Tensor
    future: Tensor
    known: Tensor | None = None

    @property
    def history(self) -> Tensor:
        """`[batch, context, channels]`, standardised."""
        return self.inputs.history

    @property
    def weight(self) -> float:
        """The number of windows, each weighted by its share of known targets."""
        windows = len(self.target)
        return windows if self.known is None else windows * self.known.double().mean().item()


class Windows(Dataset[Batch]):
    """All windows of context and horizon within the spans.

    The rows are kept once, in float32, and windows are cut out on access. So memory grows with
    rows, not with windows. A history is filled from the rows before its origin alone.

    Attributes:
        unit: `[targets]`, the standard deviation of the training rows in the units of the windows.
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
            spans: Rows of its tables; spans too short for a window are ignored.
            context: Number of history steps.
            horizon: Number of target steps.
            scaler: Scaler of the training rows.
            calendar: Calendar features, or None.
            targets: Places of the channels to forecast; all channels if None.

        Raises:
            DataError: no span holds a window, or no window has a known target.
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
        known = scaler.of(targets)
        self.unit = torch.tensor(known.training.std).double() / torch.tensor(known.std).double()
        self.calendar = None
        if calendar is not None:
            times = [panel.tables[table].timestamps[start:end] for table, start, end in spans]
            self.calendar = torch.from_numpy(calendar.encode(np.concatenate(times)))
        self.covariates = _rows_of(panel, spans, "covariates")
        self.static = _rows_of(panel, spans, "static")
        self._latest = _latest(panel, spans)
        self._spans = spans
        self._count = sum(counts)
        # The first window of each span, and the number by which its rows exceed its windows.
        self._firsts = torch.from_numpy(np.cumsum(counts)[:-1])
        self._fewer = context + horizon - 1
        self._steps = torch.arange(context + horizon)
        if self._latest is not None and not any(
            batch.known is None or batch.known.any() for batch in self.batches(_BATCH)
        ):
            raise DataError(
                f"all targets of windows of context {context} and horizon {horizon} are missing "
                "and were filled in"
            )

    @classmethod
    def of(
        cls, config: ForecasterConfig, panel: Panel, spans: Iterable[Span], scaler: Scaler
    ) -> Self:
        """The windows that a model reads and forecasts, with its codes of covariates.

        Raises:
            DataError: as above, or as `recoded`.
        """
        panel = recoded(panel, config.covariates)
        return cls(
            panel, spans, config.context, config.horizon, scaler, config.calendar, config.targets
        )

    def to(self, device: torch.device) -> Windows:
        """Move the rows to a device; windows are then cut out there."""
        self.values = self.values.to(device)
        self.unit = self.unit.to(device)
        for name in ("calendar", "covariates", "static", "_latest"):
            rows = getattr(self, name)
            setattr(self, name, None if rows is None else rows.to(device))
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

    def known(self, enough: int) -> int:
        """The smallest number of windows in which a step of a target is known.

        Args:
            enough: Number at which counting stops.
        """
        if self._latest is None:
            return min(len(self), enough)
        counts, fewest = torch.zeros(()), 0
        for batch in self.batches(_BATCH):
            assert batch.known is not None  # noqa: S101 - as above
            counts = counts + batch.known.sum(dim=0)
            fewest = int(counts.min())
            if fewest >= enough:
                break
        return min(fewest, enough)

    def span(self, index: int) -> Span:
        """The rows of a window in the panel."""
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
        target, known = future[..., self.targets], None
        if self._latest is not None:
            history, known = self._as_known(self._latest, rows)
        past, ahead = self._split_of(self.calendar, rows)
        of_past, of_future = self._split_of(self.covariates, rows)
        static = None if self.static is None else self.static[rows[..., 0]]
        inputs = Inputs(history, past, ahead, of_past, of_future, static)
        return Batch(inputs, target, future, known)

    def _as_known(self, latest_known: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Histories from known values before their origins, and whether each target is known."""
        past, ahead = rows[..., : self.context], rows[..., self.context :]
        last = latest_known[past[..., -1]]
        columns = torch.arange(self.values.shape[1], device=self.values.device)
        history = self.values[rows_before(past, last), columns]
        is_sound = (last >= past[..., :1]).all(dim=-1)
        known = latest_known[ahead] == ahead[..., None]
        return history, known[..., self.targets] & is_sound[..., None, None]

    def _split_of(
        self, values: Tensor | None, rows: Tensor
    ) -> tuple[Tensor, Tensor] | tuple[None, None]:
        return (None, None) if values is None else self._split(values[rows])

    def _split(self, steps: Tensor) -> tuple[Tensor, Tensor]:
        return steps[..., : self.context, :], steps[..., self.context :, :]


def _rows_of(panel: Panel, spans: Sequence[Span], kind: str) -> Tensor | None:
    """Codes of covariates `[rows, covariates]` over spans; static ones are repeated."""
    found = []
    for table, start, end in spans:
        codes = getattr(panel.tables[table], kind)
        if codes is None:
            return None
        part = codes[None].repeat(end - start, axis=0) if kind == "static" else codes[start:end]
        found.append(part.astype(np.float32))
    return torch.from_numpy(np.concatenate(found))


def _latest(panel: Panel, spans: Sequence[Span]) -> Tensor | None:
    """The row of the latest known value `[rows, channels]`, over spans in a row.

    It is -1 before the first known value of a span. None if no value was filled in.
    """
    if all(panel.tables[span.table].filled is None for span in spans):
        return None
    found, before = [], 0
    for table, start, end in spans:
        filled = panel.tables[table].filled
        part = np.zeros((end - start, len(panel.channels)), np.bool_)
        last = latest(~(part if filled is None else filled[start:end]))
        found.append(np.where(last < 0, -1, last + before))
        before += end - start
    return torch.from_numpy(np.concatenate(found))
