"""A whole table forecast: divided once, gone on with where it was, and marked when it is done."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict, ValidationError

from foretell.batch.errors import BatchError
from foretell.batch.output import FORECASTS, Counts, read_counts
from foretell.batch.parts import Done, Work
from foretell.batch.places import Place, open_place
from foretell.batch.plan import Part, divide
from foretell.batch.preparation import Asked, Prepared, prepare
from foretell.bundle.layout import MANIFEST
from foretell.service.engine.limits import usable_cpus

RECORD, SUCCESS = "_foretell.json", "_SUCCESS"
# Rows of a part: some seconds of work, and files of a good size.
PART_ROWS = 4 * 1024 * 1024
Execute = Callable[[Work, Sequence[Part]], Iterator[Done]]


class Record(BaseModel):
    """What forecasts are of; a run goes on only with the same.

    Attributes:
        model: Name, version, and the sum of the manifest, which has those of all files.
        options: Of the forecasts.
        input: Sum over names, sizes and times of the table's files.
        parts: How the table is divided.
    """

    model_config = ConfigDict(extra="forbid")

    model: str
    options: dict[str, Any]
    input: str
    parts: list[Part] = []


class Summary(NamedTuple):
    """What came of a run.

    Attributes:
        counts: Series of the table.
        before: Those that runs before this one had done.
        seconds: What it took.
    """

    counts: Counts
    before: int
    seconds: float


class Progress:
    """What a run calls; this one tells nothing."""

    def divided(self, rows: int, done: int) -> None:
        """The table has so many rows, of which so many were done before."""

    def advanced(self, rows: int) -> None:
        """So many more are done."""


def forecast_table(
    asked: Asked,
    execute: Execute,
    progress: Progress,
    part_rows: int = PART_ROWS,
    workers: int | None = None,
) -> Summary:
    """Forecast a table, or what is left of it.

    Args:
        asked: What is to be done.
        execute: Runs parts.
        progress: Told of them.
        part_rows: Rows of a part; the last ones have fewer.
        workers: Who forecast at a time; as many as there are CPUs here if None.

    Raises:
        BatchError: as `prepare`; what lies at the target is of something else; or a part cannot be
            forecast, or is not there when it is.
        BundleError: the bundle does not keep the contract.
        StorageError: a place in object storage cannot be read or written.
    """
    began = time.monotonic()
    prepared = prepare(asked)
    target = open_place(asked.target)
    with target.claimed():
        parts = _recorded(prepared, target, part_rows, workers or usable_cpus()).parts
        there = _written(target)
        done = [part for part in parts if part.file in there]
        left = [part for part in parts if part.file not in there]
        before = [read_counts(target, part) for part in done]
        rows = {part.number: part.rows for part in parts}
        progress.divided(sum(rows.values()), sum(part.rows for part in done))
        counts = list(before)
        for each in execute(prepared.work, left) if left else ():
            counts.append(each.counts)
            progress.advanced(rows[each.part])
        _check_there(target, left)
        with target.writing(SUCCESS) as path:
            path.touch()
    return Summary(
        Counts(*(sum(each) for each in zip(*counts, strict=True))),
        sum(map(sum, before)),
        time.monotonic() - began,
    )


def _written(target: Place) -> set[str]:
    """The files of parts that are there."""
    return {PurePosixPath(file.name).name for file in target.files(FORECASTS)}


def _check_there(target: Place, parts: Sequence[Part]) -> None:
    """Make sure that what workers have written is at the target, seen from here.

    Raises:
        BatchError: it is not.
    """
    there = _written(target)
    for part in parts:
        if part.file in there:
            continue
        try:
            # Where disks are shared, a list of files may be late.
            read_counts(target, part)
        except FileNotFoundError:
            raise BatchError(
                f"{target.of(f'{FORECASTS}/{part.file}')}: was written by a worker, and is not "
                "there; write to a place that all nodes of the cluster share"
            ) from None


def _recorded(prepared: Prepared, target: Place, part_rows: int, workers: int) -> Record:
    """What the target says it is of, or is from now on.

    Raises:
        BatchError: it is of something else.
    """
    now = _record(prepared)
    found = target.read(RECORD)
    if found is None:
        if target.files():
            raise BatchError(
                f"{target.of('')}: is not empty, and not of an earlier run of this command"
            )
        files = [file.name for file in prepared.files]
        now.parts = divide(prepared.tables, files, part_rows, usable_cpus(), workers)
        if not now.parts:
            raise BatchError(f"{prepared.work.source}: there are no rows")
        with target.writing(RECORD) as path:
            path.write_text(now.model_dump_json())
        return now
    try:
        record = Record.model_validate_json(found)
    except ValidationError:
        raise BatchError(f"{target.of(RECORD)}: is not a record of this release") from None
    for name in ("model", "options", "input"):
        mine, other = (getattr(each, name) for each in (now, record))
        if mine != other:
            raise BatchError(
                f"{target.of('')}: is of {_differs(name, mine, other)}; write to another place, or "
                "remove this one"
            )
    return record


def _differs(name: str, mine: Any, other: Any) -> str:  # noqa: ANN401
    if name == "options":
        key = next(key for key in mine if mine[key] != other.get(key))
        return f"other options: {key} {other.get(key)}, not {mine[key]}"
    if name == "model":
        return f"model {other}, not {mine}"
    return "another table, or its files were written since"


def _record(prepared: Prepared) -> Record:
    about, bundle = prepared.manifest, prepared.work.bundle
    sums = hashlib.sha256((bundle / MANIFEST).read_bytes()).hexdigest()
    files = hashlib.sha256(repr(prepared.files).encode()).hexdigest()
    return Record(
        model=f"{about.name}@{about.version} ({sums[:16]})",
        # As JSON reads them.
        options=Record.model_validate_json(
            Record(model="", options=prepared.said, input="").model_dump_json()
        ).options,
        input=files,
    )
