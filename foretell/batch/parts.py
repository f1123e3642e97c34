"""What a worker does: a part of the table, from its rows to its files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from foretell.batch.chunks import read_chunks
from foretell.batch.errors import BatchError, RepeatedError
from foretell.batch.forecaster import Forecaster
from foretell.batch.output import Counts, Writer
from foretell.batch.places import open_place
from foretell.batch.plan import Part
from foretell.batch.tables import Columns, Tables
from foretell.bundle.errors import BundleError
from foretell.service.errors import ServiceError, StartError
from foretell.service.forecast.requests import ForecastOptions
from foretell.service.settings import DeviceChoice
from foretell.storage.errors import StorageError


@dataclass(frozen=True)
class Work:
    """What is forecast, with what and to where; for another process.

    Attributes:
        source: Path or URL of the table.
        columns: What it calls its columns.
        bundle: Folder of the model.
        options: What is forecast of every series.
        last: Rows that are read of a series, the latest.
        device: Where the model runs.
        target: Path or URL of what is written.
        schema: Of the forecasts.
    """

    source: str
    columns: Columns
    bundle: Path
    options: ForecastOptions
    last: int
    device: DeviceChoice
    target: str
    schema: pa.Schema


class Done(NamedTuple):
    """A part that is written.

    Attributes:
        part: Its number.
        counts: Its series.
    """

    part: int
    counts: Counts


class Worker:
    """Forecasts parts, with a model of its own.

    Args:
        work: What to do.

    Raises:
        BatchError: the model cannot be loaded here.
    """

    def __init__(self, work: Work) -> None:
        self._work = work
        try:
            self._forecaster = Forecaster(work.bundle, work.options, work.device)
        except (BundleError, StartError, ServiceError) as error:
            raise BatchError(str(error)) from None
        manifest = self._forecaster.model.manifest
        time = work.columns.time and work.schema.field(work.columns.time).type
        self._tables = Tables(open_place(work.source), work.columns, manifest.channels, time)
        self._target = open_place(work.target)

    def run(self, part: Part, go_on: Callable[[], bool] = lambda: True) -> Done:
        """Forecast a part; it is written whole or not at all.

        Args:
            part: The part.
            go_on: Asked from time to time.

        Raises:
            BatchError: it cannot be read or forecast, or is not to go on.
        """
        manifest, tables = self._forecaster.model.manifest, self._tables
        writer = Writer(self._target, part, tables, self._work.schema, manifest)
        try:
            with writer:
                seen: set[object] | None = None if part.is_read else {part.before}
                for chunk in read_chunks(tables.rows(part.spans), self._work.last, seen):
                    if not go_on():
                        raise BatchError("stopped")
                    found, rejected = self._forecaster.forecast(chunk.table)
                    for each in found:
                        writer.add(chunk, each)
                    writer.reject(chunk, rejected)
        except RepeatedError as error:
            file, row = part.place(error.row)
            raise error.at(tables.place.of(file), row, tables.columns.id) from None
        except ServiceError as error:
            raise BatchError(f"part {part.number}: {error.message}") from error
        except StorageError as error:
            raise BatchError(str(error)) from error
        return Done(part.number, writer.counts)

    def close(self) -> None:
        """Give back what the model holds."""
        self._forecaster.close()
