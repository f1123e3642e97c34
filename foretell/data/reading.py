"""Reading of data, and its options."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
from pydantic import AliasChoices, BeforeValidator, Field, ValidationInfo, field_validator

from foretell.bundle.covariates import Covariate, Covariates
from foretell.bundle.nearness import listed
from foretell.bundle.part import Part
from foretell.data.apart import are_many, remedy_for_repeats
from foretell.data.cells import ArrowFrame, Cells, of_frame
from foretell.data.columns import choose_columns, read_ids
from foretell.data.covariates import Kinds, read_static
from foretell.data.ends import keep_last
from foretell.data.errors import DataError
from foretell.data.files import read_file
from foretell.data.numbers import Mark
from foretell.data.panel import Panel, Source
from foretell.data.parts import assemble
from foretell.data.regular import made_regular
from foretell.data.roles import IDS, Roles, find_roles, named_ids
from foretell.data.rows import Rows
from foretell.data.series import Assembly
from foretell.data.texts import Texts
from foretell.data.timestamps import read_timestamps
from foretell.data.wide import refuse_wide
from foretell.timeaxis.errors import TimestampError
from foretell.timeaxis.frequency import Frequency
from foretell.timeaxis.gaps import Filling
from foretell.timeaxis.zones import find_zone


def split_names(text: str) -> list[str]:
    """Names separated by commas; double quotes protect a comma in a name."""
    return [name.strip() for name in next(csv.reader([text], skipinitialspace=True), [""])]


Names = Annotated[
    tuple[str, ...],
    BeforeValidator(lambda given: split_names(given) if isinstance(given, str) else given),
]


class Reading(Part):
    """Options for reading a table; most are found in it if not given."""

    time_column: Names | None = Field(
        default=None,
        validation_alias=AliasChoices("time_column", "timestamp_column"),
        description="Column of the timestamps, or several that form one, such as year,quarter; "
        "found if not given.",
    )
    id_column: Names | None = Field(
        default=None,
        description="Column with the name of each row's series, or several; found by usual names "
        "if not given.",
    )
    channels: Names | None = Field(
        default=None,
        description="Columns to read, separated by commas; all columns of numbers if not given.",
    )
    future_covariates: Names | None = Field(
        default=None,
        description="Columns that are known for the horizon too, such as prices or holidays, "
        "separated by commas. Rows after the last values may continue them.",
    )
    past_covariates: Names | None = Field(
        default=None,
        description="Columns that are known up to the present alone; models read and do not "
        "forecast them.",
    )
    static_covariates: Names | None = Field(
        default=None, description="Columns with one value for each series."
    )
    frequency: str | None = Field(
        default=None, description="Spacing of the rows, such as h or 15min; found if not given."
    )
    date_format: str | None = Field(
        default=None,
        description="Format of the timestamps, such as %d.%m.%Y, or s, ms, us, ns since 1970; "
        "found if not given.",
    )
    time_zone: str | None = Field(
        default=None,
        description="Time zone of timestamps from a clock that changes, such as Europe/Berlin.",
    )
    decimal: Mark | None = Field(
        default=None, description="Decimal mark of numbers in text files; found if not given."
    )
    missing: Filling = Field(
        default="error",
        description="Treatment of missing rows and values: refuse them, fill them by linear "
        "interpolation, or repeat the value before.",
    )
    max_gap: int = Field(
        default=12,
        validation_alias=AliasChoices("max_gap", "longest_gap"),
        ge=1,
        description="Most missing steps in a row that are filled; longer gaps split a series.",
    )

    @staticmethod
    def of_covariates(covariates: Covariates | None) -> dict[str, tuple[str, ...]]:
        """The options that read a model's covariates."""
        every = {} if covariates is None else dict(covariates)
        return {
            f"{kind}_covariates": tuple(each.name for each in own)
            for kind, own in every.items()
            if own
        }

    @field_validator("future_covariates", "past_covariates", "static_covariates")
    @classmethod
    def _check_kind(cls, names: Names | None, info: ValidationInfo) -> Names | None:
        for i, name in enumerate(names or ()):
            if name in (names or ())[:i]:
                raise ValueError(f"{name!r} is named twice")
            for other in ("channels", "future_covariates", "past_covariates"):
                is_itself = other == info.field_name
                is_channel = other == "channels" and info.field_name == "past_covariates"
                if not is_itself and not is_channel and name in (info.data.get(other) or ()):
                    raise ValueError(f"{name!r} is named by {other}, too; take it out of one")
        return names

    @property
    def kinds(self) -> Kinds:
        """Names of the covariates."""
        return Kinds(
            self.future_covariates or (), self.past_covariates or (), self.static_covariates or ()
        )

    @field_validator("frequency")
    @classmethod
    def _check_frequency(cls, frequency: str | None) -> str | None:
        return frequency and str(Frequency.parse(frequency))

    @field_validator("time_zone")
    @classmethod
    def _check_zone(cls, zone: str | None) -> str | None:
        return zone and find_zone(zone).key


def read(
    path: Path,
    reading: Reading | None = None,
    needed: Sequence[str] = (),
    *,
    last: int | None = None,
    known: Mapping[str, Covariate] | None = None,
) -> Panel:
    """Read a file: CSV (also gzipped, with tabs or semicolons), Parquet, Feather or Arrow.

    Args:
        path: The file.
        reading: Options.
        needed: Columns that the file must have, besides those that `reading` names.
        last: Number of times read at the end of each series; all if not given. Problems of earlier
            rows become notes.
        known: Covariates of a model by name: their columns are read as theirs are.

    Raises:
        DataError: it does not hold regular time series. The message lists all problems with file,
            rows (lines of a text file, from 1) and columns.
    """
    reading = reading or Reading()
    kinds = reading.kinds
    channels = [name for name in (*(reading.channels or ()), *needed) if not kinds.is_channel(name)]
    cells = _read_cells(path, reading, (*channels, *kinds.names))
    return _panel(cells, reading, path, last, known)


def read_known(path: Path, reading: Reading, channels: Sequence[str]) -> Panel:
    """Read those of some channels that a file has, whose rows and values may be missing.

    Args:
        path: The file.
        reading: Options, without covariates. `channels` are columns that the file must have.
        channels: Columns that are read if `reading` names none; at least one must be there.

    Returns:
        Tables whose values may be missing, by `Table.known`. Longer gaps than `max_gap` are between
        two tables of a series.

    Raises:
        DataError: as `read`, except for missing rows and values.
    """
    cells = _read_cells(path, reading, reading.channels or ())
    columns = list(cells.frame.columns)
    found = reading.channels or tuple(name for name in channels if name in columns)
    if not found:
        refuse_wide(cells)
        raise DataError(
            f"{path}: expected a column of at least one of {listed(channels)}; there are "
            f"{listed(columns)}"
        )
    cells.may_miss = True
    # Every series may have one row, so that a column of names never repeats one.
    ids = reading.id_column or named_ids([name for name in columns if name not in found])
    own = {"channels": found, "id_column": ids or None}
    return _panel(cells, reading.model_copy(update=own), path)


def _read_cells(path: Path, reading: Reading, needed: Sequence[str]) -> Cells:
    """The table of a file that must have some columns."""
    ids, kinds = reading.id_column or (), reading.kinds
    texts = Texts(frozenset(name.lower() for name in (*IDS, *ids)), frozenset(kinds.names))
    named = (*(reading.time_column or ()), *ids, *needed)
    return read_file(path, reading.decimal, texts, named)


def read_frame(frame: pd.DataFrame | ArrowFrame, reading: Reading | None = None) -> Panel:
    """Read a frame of pandas or polars, or a table of Arrow.

    Args:
        frame: The frame; an index of times or names is read as a column.
        reading: Options.

    Raises:
        DataError: it does not hold regular time series; the message counts rows from 0.
    """
    reading = reading or Reading()
    return _panel(of_frame(frame, reading.decimal), reading, None)


def _panel(
    cells: Cells,
    reading: Reading,
    path: Path | None,
    last: int | None = None,
    known: Mapping[str, Covariate] | None = None,
) -> Panel:
    if reading.channels is None:
        refuse_wide(cells)
    try:
        roles = roles_of(cells, reading)
        kinds = reading.kinds._replace(known=known or {})
        rows, covariates = _understand(cells, roles, reading, kinds, last)
        frequency = Frequency.parse(reading.frequency) if reading.frequency else None
        zone = _zone(reading.time_zone or rows.moments.zone)
        moments = made_regular(rows.moments, rows.series, frequency, zone)
        if moments is not rows.moments:
            cells.notes += moments.notes
            rows = rows._replace(moments=moments)
        missing = "mask" if cells.may_miss else reading.missing
        assembly = Assembly(missing, reading.max_gap, cells.problems, cells.notes)
        tables = assembly.tables(rows, frequency, zone)
    except DataError as error:
        cells.problems.add(str(error))
    cells.problems.check()
    if not tables:
        raise DataError(
            f"{path or 'the frame'}: no consecutive rows in which every channel has values"
        )
    notes = tuple(cells.notes)
    if path is None:
        return Panel(tuple(tables), notes=notes, covariates=covariates)
    found = {
        "time_column": roles.times,
        "id_column": roles.ids or None,
        "channels": rows.columns.channels,
        "frequency": str(tables[0].frequency),
    }
    source = Source(path, reading.model_copy(update=found))
    return Panel(tuple(tables), source, notes, covariates)


def roles_of(cells: Cells, reading: Reading) -> Roles:
    """The columns of times and names, none of which is a covariate.

    Raises:
        DataError: as `find_roles`.
    """
    times, ids = reading.time_column, reading.id_column
    frame, named = cells.frame, {*(times or ()), *(ids or ())}
    apart = [name for name in reading.kinds.names if name in frame and name not in named]
    cells.frame = frame.drop(columns=apart)
    roles = find_roles(cells, times, ids, reading.channels)
    cells.frame = cells.frame.assign(**{name: frame[name] for name in apart})
    return roles


def _understand(
    cells: Cells, roles: Roles, reading: Reading, kinds: Kinds, last: int | None
) -> tuple[Rows, Covariates | None]:
    frame = cells.frame
    if not len(frame):
        raise DataError("no rows of data below the names")
    time_column = ",".join(roles.times)
    try:
        if len(roles.times) == 1:
            moments = read_timestamps(frame[time_column], reading.date_format)
        else:
            zone = _zone(reading.time_zone)
            moments = assemble(frame[list(roles.times)], reading.date_format, zone)
    except DataError as error:
        raise DataError(f"column {time_column!r}: {error}") from None
    cells.notes += moments.notes
    if last is not None:
        moments = keep_last(cells, moments, roles, reading.channels, kinds, last)
        frame = cells.frame
    labels = frame.index.to_numpy(np.int64)
    for problem, wrong in moments.wrong:
        cells.problems.add(problem, labels[wrong], time_column)
    series, names = read_ids(cells, roles.ids)
    offsets = np.timedelta64(0) if moments.offsets is None else moments.offsets
    places = pd.DataFrame({"series": series, "time": moments.walls - offsets})
    repeated = places.duplicated() & places["time"].notna()
    if are_many(repeated.to_numpy(), frame):
        remedy = remedy_for_repeats(frame, roles.times, roles.ids)
        raise DataError(f"column {time_column!r} repeats its times: {remedy}")
    columns = choose_columns(cells, roles, reading.channels, kinds, moments.walls)
    found = [
        read_static(cells, name, series, names, kinds.known.get(name)) for name in kinds.static
    ]
    static = np.column_stack([codes for _, codes in found]) if found else None
    covariates = columns.covariates.model_copy(update={"static": tuple(each for each, _ in found)})
    rows = Rows(labels, moments, series, names, columns, static, time_column)
    return rows, covariates if kinds.names else None


def _zone(name: str | None) -> ZoneInfo | None:
    """The time zone of a name; None for a fixed offset."""
    try:
        return None if name is None else find_zone(name)
    except TimestampError:
        return None
