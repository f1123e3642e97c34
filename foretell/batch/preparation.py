"""Whether a table, a model and options fit together: told before anything is written."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

import pyarrow as pa

from foretell.batch.errors import BatchError
from foretell.batch.forecaster import unlimited
from foretell.batch.output import schema_of
from foretell.batch.parts import Work
from foretell.batch.places import File, absolute, is_table, open_place
from foretell.batch.tables import Tables, columns_of, read_schema
from foretell.bundle import calibration, manifest
from foretell.bundle.manifest import Manifest
from foretell.service.engine.intervals import Intervals
from foretell.service.engine.registry import Model
from foretell.service.errors import ServiceError
from foretell.service.forecast.options import FORECASTING
from foretell.service.forecast.requests import ForecastOptions
from foretell.service.forecast.table import ID, TIME, read_times, read_values
from foretell.service.settings import DeviceChoice
from foretell.service.validation import validate
from foretell.timeaxis.gaps import Missing

_NAMES = (pa.types.is_string, pa.types.is_large_string, pa.types.is_integer)


class Asked(NamedTuple):
    """What is to be done.

    Attributes:
        source: Path or URL of the table, a file or a folder.
        target: Path or URL of what is written.
        bundle: Folder of the model.
        horizon: Steps ahead; the model's if None.
        quantiles: Their levels.
        missing: What becomes of missing values.
        id_column: Of the names of series.
        time_column: Of the times.
        device: Where the model runs.
    """

    source: str
    target: str
    bundle: Path
    horizon: int | None = None
    quantiles: tuple[float, ...] = ()
    missing: Missing = "error"
    id_column: str = ID
    time_column: str = TIME
    device: DeviceChoice = "auto"


class Prepared(NamedTuple):
    """What was found to fit.

    Attributes:
        work: For workers.
        tables: The table.
        files: Its files.
        manifest: The model's.
        said: The options, as they are told apart from others.
    """

    work: Work
    tables: Tables
    files: list[File]
    manifest: Manifest
    said: dict[str, Any]


def prepare(asked: Asked) -> Prepared:
    """Look at everything but the rows.

    Raises:
        BatchError: something does not fit.
        BundleError: the bundle does not keep the contract.
        StorageError: a place in object storage cannot be read.
    """
    about = manifest.read(asked.bundle)
    said = {
        "horizon": asked.horizon or about.horizon,
        "quantiles": list(asked.quantiles) or None,
        "missing": asked.missing,
    }
    try:
        options = validate(ForecastOptions, said, "options")
        _check(options, asked.bundle, about)
    except ServiceError as error:
        option = (error.param or "options").removeprefix("options.").partition("[")[0]
        raise BatchError(f"--{option}: {error.message}") from None
    inside, around = (absolute(each).rstrip("/") + "/" for each in (asked.target, asked.source))
    if inside.startswith(around):
        raise BatchError(
            f"{asked.target}: lies in {asked.source}, of which all files are read; write to "
            "another place"
        )
    source = open_place(asked.source)
    files = [file for file in source.files() if is_table(source.of(file.name))]
    if not files:
        raise BatchError(f"{asked.source}: there is no file that ends with .parquet or .csv")
    tables = _tables(asked, files, about)
    given = tables.schema(files[0].name)
    for file in files:
        if (other := tables.schema(file.name)) != given:
            raise BatchError(
                f"{source.of(file.name)}: its columns are {_shown(other)}, and those of "
                f"{source.of(files[0].name)} are {_shown(given)}"
            )
    _check_types(tables, given, about, source.of(files[0].name))
    # Rows before those that the model reads help to fill these in.
    helps = asked.missing in ("interpolate", "ffill")
    last = 2 * about.context if helps else about.context
    work = Work(
        absolute(asked.source),
        tables.columns,
        asked.bundle,
        options,
        last,
        asked.device,
        absolute(asked.target),
        schema_of(tables.columns, given, about, asked.quantiles),
    )
    return Prepared(work, tables, files, about, said | {"columns": tables.columns})


def _check(options: ForecastOptions, bundle: Path, about: Manifest) -> None:
    """Whether the model does what the options want.

    Raises:
        ServiceError: it does not.
    """
    intervals = Intervals(about, calibration.read(bundle, about))
    described = SimpleNamespace(manifest=about, name=about.name, intervals=intervals)
    # All that is asked of a model here, which is loaded elsewhere.
    FORECASTING.read_options(options, 1, cast("Model", described), unlimited(bundle))


def _tables(asked: Asked, files: Sequence[File], about: Manifest) -> Tables:
    place = open_place(asked.source)
    names = read_schema(place, files[0].name, None).names
    columns = columns_of(names, asked.id_column, asked.time_column, about.channels)
    return Tables(place, columns, about.channels)


def _check_types(tables: Tables, given: pa.Schema, about: Manifest, place: str) -> None:
    """Whether columns are of types that are read, which a table without rows tells."""
    kind = given.field(ID).type
    if not any(is_it(kind) for is_it in _NAMES):
        name = tables.columns.id
        raise BatchError(f"{place}: column {name!r}: expected strings or integers, got {kind}")
    if tables.columns.time is None and about.calendar is not None:
        raise BatchError(
            f"{place}: a column of times is required: {about.name} uses calendar features"
        )
    table = given.empty_table()
    try:
        read_times(table, about.step)
        deque(read_values(table, about.channels), maxlen=0)
    except ServiceError as error:
        raise BatchError(
            f"{place}: column {tables.names[error.param or ID]!r}: {error.message}"
        ) from None


def _shown(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)
