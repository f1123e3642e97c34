"""The work of a worker: one part of the table, from its rows to its files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from foretell.batch.chunks import read_chunks
from foretell.batch.errors import BatchError
from foretell.batch.forecaster import Forecaster
from foretell.batch.output import Counts, Writer
from foretell.batch.places import Place
from foretell.batch.plan import Part
from foretell.batch.tables import Table
from foretell.bundle.errors import BundleError
from foretell.bundle.manifest import digest_of
from foretell.service.errors import ServiceError, StartError
from foretell.service.forecast.requests import ForecastOptions
from foretell.service.settings import DeviceChoice


@dataclass(frozen=True)
class Work:
    """Table, model, options and target of a run; sent to worker processes.

    Attributes:
        digest: Digest of the bundle's manifest.
        last: Number of latest rows that are read of each series.
        most: Number of series in a chunk.
        schema: Schema of the forecasts.
        run: Digest of the run's record; empty before the record exists.
    """

    table: Table
    bundle: Path
    digest: str
    options: ForecastOptions
    last: int
    most: int
    device: DeviceChoice
    target: Place
    schema: pa.Schema
    run: str = ""


class Done(NamedTuple):
    """Number and counts of a part that is written."""

    part: int
    counts: Counts


class _Unchanged:
    """Accepts the bundle that the run began with; its manifest has the sums of all files."""

    def __init__(self, digest: str) -> None:
        self._digest = digest

    def check(self, folder: Path, content: bytes, sums: Mapping[str, str]) -> None:  # noqa: ARG002
        if digest_of(content) != self._digest:
            raise BundleError(
                f"{folder}: is not the bundle that the run began with; put that one back and "
                "repeat the command, or write to another OUTPUT"
            )


class Worker:
    """Forecasts parts with a model of its own.

    Args:
        work: Table, model, options and target.

    Raises:
        BatchError: the model cannot be loaded here.
    """

    def __init__(self, work: Work) -> None:
        self._work = work
        try:
            known = _Unchanged(work.digest)
            self._forecaster = Forecaster(work.bundle, work.options, work.device, known)
        except (BundleError, StartError, ServiceError) as error:
            raise BatchError(str(error)) from None

    def run(self, part: Part, go_on: Callable[[], bool] = lambda: True) -> Done:
        """Forecast a part; its files are written atomically.

        Args:
            part: The part.
            go_on: Callback between chunks; False ends the part.

        Raises:
            BatchError: the part cannot be read, forecast or written, or `go_on` ended it.
        """
        work, manifest = self._work, self._forecaster.model.manifest
        writer = Writer(work.target, part, work.table, work.schema, manifest, work.run)
        try:
            with writer:
                for chunk in read_chunks(work.table, part, work.last, work.most):
                    if not go_on():
                        raise BatchError("stopped")
                    found, rejected = self._forecaster.forecast(chunk)
                    for each in found:
                        writer.add(chunk, each)
                    writer.reject(chunk, rejected)
        except ServiceError as error:
            raise BatchError(f"part {part.number}: {error.message}") from error
        return Done(part.number, writer.counts)

    def close(self) -> None:
        """Free the resources of the model."""
        self._forecaster.close()
