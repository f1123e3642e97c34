"""Read a table by following its error messages."""

import csv
import re
import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from foretell.data.errors import DataError
from foretell.data.panel import Panel
from foretell.data.reading import Reading, read

_FLAG = re.compile(r"--([a-z-]+) (?!says)('(?:[^']|'\"'\"')*'|[^\s;:]+)")


def flags(message: str) -> dict[str, str]:
    """Options with values in a message, as fields of `Reading`."""
    return {
        name.replace("-", "_"): shlex.split(value)[0]
        for name, value in reversed(_FLAG.findall(message))
        if name.replace("-", "_") in Reading.model_fields
    }


def follow(path: Path, **options: str) -> tuple[Panel, dict[str, str]]:
    """Read a file; where it is refused, again with the options that the message names.

    Returns:
        The panel, and the options.
    """
    for _ in range(4):
        try:
            return read(path, Reading(**options)), options
        except DataError as error:
            suggested = flags(str(error))
            if not suggested.items() - options.items():
                raise AssertionError("no remedy") from error
            options |= suggested
    raise AssertionError(f"refused with {options}")


def written(
    folder: Path,
    header: str,
    *columns: Iterable[object],
    load: Sequence[float] | None = None,
    form: str | None = None,
) -> Path:
    """Write a file of columns, and of `load`, which rises by 1/4 in each row.

    Args:
        folder: Folder of the file.
        header: Line with the names of the columns.
        columns: Columns of the file.
        load: Other values of `load`.
        form: Format of times in the columns.
    """
    frame = pd.DataFrame({i: list(column) for i, column in enumerate(columns)})
    frame["load"] = np.arange(len(frame)) / 4 if load is None else load
    path = folder / "data.csv"
    (names,) = csv.reader([header])
    frame.to_csv(path, index=False, header=[*names, "load"], date_format=form)
    return path
