"""How a run tells on a terminal what it is doing."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bars

from foretell.batch.run import Progress


class ConsoleProgress(Progress):
    """A bar of rows with the time left, on stderr where that is a terminal."""

    def __init__(self) -> None:
        columns = (TextColumn("rows"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        console = Console(stderr=True)
        self._bars = Bars(
            *columns, console=console, transient=True, disable=not console.is_terminal
        )
        self._task = self._bars.add_task("rows", total=None)

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bars.stop()

    def divided(self, rows: int, done: int) -> None:
        """See `Progress.divided`."""
        self._bars.reset(self._task, total=rows, completed=done)

    def advanced(self, rows: int) -> None:
        """See `Progress.advanced`."""
        self._bars.advance(self._task, rows)
