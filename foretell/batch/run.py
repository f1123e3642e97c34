"""A whole table forecast: divided once, gone on with where it was, and marked when it is done."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from pydantic import ValidationError

from foretell.batch.errors import BatchError
from foretell.batch.output import FORECASTS, REJECTED, Counts, read_counts
from foretell.batch.places import Place
from foretell.batch.plan import Part, divide
from foretell.batch.prepare import Record, Task, prepare
from foretell.batch.work import Done, Work
from foretell.service.engine.limits import usable_cpus

RECORD, SUCCESS = "_foretell.json", "_SUCCESS"
# Rows of a part: some seconds of work, and files of a good size.
PART_ROWS = 4 * 1024 * 1024
Execute = Callable[[Work, Sequence[Part]], Iterator[Done]]


class Summary(NamedTuple):
    """Series of the table, those that earlier runs had done, and the seconds of this one."""

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
    """Forecast a table, or what is left of it.

    Args:
        task: What is to be done.
        execute: Runs parts.
        progress: Called with the rows that are done and all rows, at the start and for each part.
        part_rows: Rows of a part; the last ones have fewer.
        workers: That forecast at a time; as many as there are CPUs here if None.

    Raises:
        BatchError: as `prepare`; what lies at the target is of something else; or a part cannot be
            forecast, or is not there when it is.
        BundleError: the bundle does not keep the contract.
    """
    began = time.monotonic()
    work, record = prepare(task)
    target = work.target
    parts = _divided(work, record, part_rows, workers or usable_cpus())
    there = target.files(FORECASTS)
    left = [part for part in parts if part.file not in there]
    before = [read_counts(target, part) for part in parts if part.file in there]
    total = sum(part.rows for part in parts)
    done = total - sum(part.rows for part in left)
    progress(done, total)
    rows = {part.number: part.rows for part in left}
    counts = list(before)
    for each in execute(work, left) if left else ():
        counts.append(each.counts)
        done += rows[each.part]
        progress(done, total)
    _check_there(target, left)
    target.write(SUCCESS, b"")
    for folder in (FORECASTS, REJECTED):
        target.tidy(folder)
    return Summary(
        Counts(*(sum(each) for each in zip(*counts, strict=True))),
        sum(map(sum, before)),
        time.monotonic() - began,
    )


def _check_there(target: Place, parts: Sequence[Part]) -> None:
    """Make sure that what workers have written is at the target, seen from here.

    Raises:
        BatchError: it is not.
    """
    if missing := {part.file for part in parts} - target.files(FORECASTS).keys():
        raise BatchError(
            f"{target.of(f'{FORECASTS}/{min(missing)}')}: was written by a worker, and is not "
            "there; write to a place that all nodes of the cluster share"
        )


def _divided(work: Work, now: Record, part_rows: int, workers: int) -> list[Part]:
    """The parts that the target says it has, or has from now on.

    Raises:
        BatchError: it is of something else.
    """
    target = work.target
    found = target.read(RECORD)
    if found is None:
        if target.files():
            raise BatchError(f"{target}: is not empty, and not of an earlier run of this command")
        now.parts = divide(work.table, part_rows, usable_cpus(), workers)
        target.write(RECORD, now.model_dump_json().encode())
        return now.parts
    try:
        record = Record.model_validate_json(found)
    except ValidationError:
        raise BatchError(f"{target.of(RECORD)}: is not a record of this release") from None
    for name in ("model", "options", "input"):
        mine, other = (getattr(each, name) for each in (now, record))
        if mine != other:
            raise BatchError(
                f"{target}: is of {_differs(name, mine, other)}; write to another place, or "
                "remove this one"
            )
    return record.parts


def _differs(name: str, mine: Any, other: Any) -> str:  # noqa: ANN401
    if name == "options":
        key = next(key for key in mine if mine[key] != other.get(key))
        return f"other options: {key} {other.get(key)}, not {mine[key]}"
    if name == "model":
        return f"model {other}, not {mine}"
    return "another table, or its files were written since"
