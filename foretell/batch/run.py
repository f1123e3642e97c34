"""A run over a whole table: division into parts, resumption, and the mark of success."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from pydantic import ValidationError

from foretell.batch.errors import BatchError
from foretell.batch.output import FORECASTS, REJECTED, Counts, check_files, read_counts
from foretell.batch.plan import Part, divide
from foretell.batch.prepare import Record, Task, prepare, sum_of
from foretell.batch.tables import files_of
from foretell.batch.work import Done, Work
from foretell.service.engine.limits import usable_cpus

RECORD, SUCCESS = "_foretell.json", "_SUCCESS"
# Rows of a part: some seconds of work, and files of a practical size.
PART_ROWS = 4 * 1024 * 1024
Execute = Callable[[Work, Sequence[Part]], Iterator[Done]]


class Summary(NamedTuple):
    """Counts of series, number of series done by earlier runs, and seconds of this run."""

    counts: Counts
    before: int
    seconds: float


def forecast_table(
    task: Task,
    execute: Execute,
    progress: Callable[[int, int], object] = lambda *_: None,
    part_rows: int = PART_ROWS,
    workers: int | None = None,
) -> Summary:
    """Forecast a table, or the parts that an earlier run has left.

    Args:
        task: Options of the run.
        execute: Function that forecasts parts.
        progress: Callback with the finished and the total number of rows, at the start and after
            each part.
        part_rows: Rows of a part; the last parts have fewer.
        workers: Expected number of workers; the number of CPUs by default.

    Raises:
        BatchError: `prepare` failed; the target contains another run; a part cannot be forecast, or
            its file is missing afterwards; or the table was changed during the run.
        BundleError: the bundle is invalid.
    """
    began = time.monotonic()
    work, now = prepare(task)
    target = work.target
    record = _recorded(work, now, part_rows, workers or usable_cpus())
    work, parts = replace(work, run=record.digest), record.parts
    there = target.files(FORECASTS)
    left = [part for part in parts if part.file not in there]
    before = [read_counts(target, part, work.run) for part in parts if part.file in there]
    if left:
        target.remove(SUCCESS)
    total = sum(part.rows for part in parts)
    done = total - sum(part.rows for part in left)
    progress(done, total)
    rows = {part.number: part.rows for part in left}
    counts = list(before)
    for each in execute(work, left) if left else ():
        counts.append(each.counts)
        done += rows[each.part]
        progress(done, total)
    if sum_of(files_of(work.table.place)) != record.input:
        raise BatchError(
            f"{work.table.place}: its files were written since the run began; remove {target}"
        )
    check_files(target, parts, work.run)
    target.write(SUCCESS, b"")
    for folder in (FORECASTS, REJECTED):
        target.tidy(folder)
    return Summary(
        Counts(*(sum(each) for each in zip(*counts, strict=True))),
        sum(map(sum, before)),
        time.monotonic() - began,
    )


def _recorded(work: Work, now: Record, part_rows: int, workers: int) -> Record:
    """Read the record of the target, or write it.

    Raises:
        BatchError: the record is of another run.
    """
    target = work.target
    # Listed before the record is read: another run writes its record before its files.
    is_empty = not target.files()
    found = target.read(RECORD)
    if found is None:
        if not is_empty:
            raise BatchError(f"{target}: is not empty, and not of an earlier run of this command")
        now.parts = divide(work.table, part_rows, usable_cpus(), workers)
        target.write_first(RECORD, now.model_dump_json().encode())
        # Another run may have written its record first.
        found = target.read(RECORD) or b""
    try:
        record = Record.model_validate_json(found)
    except ValidationError:
        raise BatchError(f"{target.of(RECORD)}: is not a record of this release") from None
    for name in ("model", "options", "input"):
        mine, other = (getattr(each, name) for each in (now, record))
        if mine != other:
            raise BatchError(
                f"{target}: holds a run of {_differs(name, mine, other)}; write to another place, "
                "or remove this one"
            )
    return record


def _differs(name: str, mine: Any, other: Any) -> str:  # noqa: ANN401
    if name == "options":
        key = next(key for key in {**mine, **other} if mine.get(key) != other.get(key))
        return f"other options: {key} {other.get(key)}, not {mine.get(key)}"
    if name == "model":
        return f"model {other}, not {mine}"
    return "another table, or its files were written since"
