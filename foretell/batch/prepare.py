"""Checks of table, model and options before anything is written."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

import pyarrow as pa
from pyarrow import fs
from pydantic import BaseModel, ConfigDict

from foretell.batch.errors import BatchError
from foretell.batch.forecaster import unlimited
from foretell.batch.output import schema_of
from foretell.batch.places import Place, place_of
from foretell.batch.plan import Part
from foretell.batch.tables import Table, files_of, open_table
from foretell.batch.work import Work
from foretell.bundle import calibration, manifest
from foretell.bundle.manifest import Manifest
from foretell.service.engine.intervals import Intervals
from foretell.service.engine.registry import Model
from foretell.service.errors import ServiceError
from foretell.service.forecast.columns import ID, TIME, read_times
from foretell.service.forecast.options import FORECASTING
from foretell.service.forecast.requests import ForecastOptions
from foretell.service.forecast.table_covariates import check_columns
from foretell.service.settings import DeviceChoice
from foretell.service.validation import validate
from foretell.timeaxis.gaps import Missing

# Values of the rows or forecasts in a chunk.
_VALUES = 8 * 1024 * 1024
_NAMES = (pa.types.is_string, pa.types.is_large_string, pa.types.is_integer)


class Task(NamedTuple):
    """Options of `foretell batch`."""

    source: str
    target: str
    bundle: Path
    horizon: int | None = None
    quantiles: tuple[float, ...] = ()
    missing: Missing = "error"
    id_column: str = ID
    time_column: str = TIME
    device: DeviceChoice = "auto"


class Record(BaseModel):
    """Identity of a run; a run resumes only with the same record.

    Attributes:
        model: Name, version, and checksum of the manifest, which contains those of all files.
        options: Options of the forecasts.
        input: Checksum over names, sizes and times of the table's files.
        parts: Parts of the table.
    """

    model_config = ConfigDict(extra="forbid")

    model: str
    options: dict[str, Any]
    input: str
    parts: list[Part] = []

    @property
    def digest(self) -> str:
        """Checksum of the record."""
        return hashlib.sha256(self.model_dump_json().encode()).hexdigest()


def prepare(task: Task) -> tuple[Work, Record]:
    """Check everything except the rows; return the work and its record.

    Raises:
        BatchError: table, model and options do not fit together, or cannot be read.
        BundleError: the bundle is invalid.
    """
    content, about = manifest.read_both(task.bundle)
    digest = manifest.digest_of(content)
    given = {
        "horizon": task.horizon or about.horizon,
        "quantiles": list(task.quantiles) or None,
        "missing": task.missing,
    }
    try:
        options = validate(ForecastOptions, given, "options")
        _check(options, task.bundle, about)
    except ServiceError as error:
        option = (error.param or "options").removeprefix("options.").partition("[")[0]
        raise BatchError(f"--{option}: {error.message}") from None
    source, target = place_of(task.source), place_of(task.target)
    if f"{_resolved(target)}/".startswith(f"{_resolved(source)}/"):
        raise BatchError(
            f"{task.target}: is inside the input {task.source}, whose files are all read; write to "
            "another place"
        )
    files = files_of(source)
    table = open_table(source, tuple(files), task.id_column, task.time_column, about)
    _check_types(table, about)
    # Missing values are filled in from rows before the context, too.
    helps = task.missing in ("interpolate", "ffill")
    last = 2 * about.context if helps else about.context
    if about.covariates is not None and about.covariates.future:
        last += -(-(task.horizon or about.horizon) // about.horizon) * about.horizon
    made = (task.horizon or about.horizon) * len(about.targets) * (1 + len(task.quantiles))
    taken = about.context * len(about.channels)
    if about.covariates is not None:
        # Every row that is read, with a code of each covariate.
        codes = len(about.covariates.future) + len(about.covariates.static)
        taken = last * (len(about.channels) + codes)
    work = Work(
        table,
        task.bundle,
        digest,
        options,
        last,
        max(_VALUES // max(taken, made), 1),
        task.device,
        target,
        schema_of(table.names, table.schema, about, task.quantiles),
    )
    record = Record(
        model=f"{about.name}@{about.version} ({digest.removeprefix('sha256:')[:16]})",
        options=given | {"columns": table.names},
        input=sum_of(files),
    )
    return work, record


def sum_of(files: Mapping[str, fs.FileInfo]) -> str:
    """Checksum over names, sizes and times of a table's files."""
    listed = [(name, each.size, each.mtime_ns) for name, each in files.items()]
    return hashlib.sha256(repr(listed).encode()).hexdigest()


def _resolved(place: Place) -> str:
    """The path or URL of a place without symbolic links."""
    return place.text if "://" in place.text else str(Path(place.text).resolve())


def _check(options: ForecastOptions, bundle: Path, about: Manifest) -> None:
    """Check that the model supports the options.

    Raises:
        ServiceError: the model does not.
    """
    intervals = Intervals(about, calibration.read(bundle, about))
    described = SimpleNamespace(manifest=about, name=about.name, intervals=intervals)
    # The check reads only these attributes of a model; workers load the model itself.
    FORECASTING.read_options(options, 1, cast("Model", described), unlimited(bundle))


def _check_types(table: Table, about: Manifest) -> None:
    """Check the types of columns by reading a table without rows."""
    place, kind = table.place.of(table.files[0]), table.schema.field(ID).type
    if not any(is_it(kind) for is_it in _NAMES):
        raise BatchError(
            f"{place}: column {table.names[ID]!r}: expected strings or integers, got {kind}"
        )
    if TIME not in table.names and about.calendar is not None:
        raise BatchError(
            f"{place}: a column of times is required: {about.name} uses calendar features"
        )
    empty = table.schema.empty_table()
    try:
        read_times(empty, about.step)
        check_columns(empty, about)
    except ServiceError as error:
        raise BatchError(
            f"{place}: column {table.names[error.param or ID]!r}: {error.message}"
        ) from None
