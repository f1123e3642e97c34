"""Files of tables, in any format."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from foretell.data.cells import Cells, from_arrow, of_frame
from foretell.data.errors import DataError
from foretell.data.numbers import Mark, is_text, read_numbers
from foretell.data.packed import read_bytes
from foretell.data.roles import IDS
from foretell.data.texts import Texts, read_text

# First bytes of the files.
_PARQUET, _FEATHER = b"PAR1", b"ARROW1"
_STREAMS = (".arrow", ".arrows", ".ipc")


def read_file(path: Path, decimal: Mark | None, texts: Texts, named: Sequence[str] = ()) -> Cells:
    """Read a file in any format.

    Args:
        path: The file.
        decimal: Decimal mark of the texts; found if not given.
        texts: Columns that hold or may hold names.
        named: Columns that the file must have. A text file is checked before its rows are read.

    Raises:
        DataError: it is not a table, or a text file lacks one of these columns.
    """
    content = read_bytes(path)
    is_stream = path.suffix.lower() in _STREAMS
    if content.startswith((_PARQUET, _FEATHER)) or is_stream:
        cells = of_frame(_read_binary(path, content), decimal, str(path))
    else:
        cells = read_text(path, content, decimal, texts, named)
    marked = "" if decimal is None else f", {decimal!r}"
    cells.read = f"read_table({str(path)!r}{marked})"
    return cells


def read_table(path: str, decimal: Mark | None = None) -> pd.DataFrame:
    """The table of a file in any format, for code that reshapes it.

    Args:
        path: The file.
        decimal: Decimal mark of the texts; found if not given.

    Raises:
        DataError: it is not a table.
    """
    cells = read_file(Path(path), decimal, Texts(frozenset(IDS)))
    for name in cells.frame:
        column = cells.frame[name]
        if str(name).lower() not in IDS and is_text(column):
            numbers = read_numbers(column, cells.decimal)
            if not numbers.wrong.any():
                cells.frame[name] = numbers.values
    return cells.frame


def _read_binary(path: Path, content: bytes) -> pd.DataFrame:
    import pyarrow as pa
    from pyarrow import feather, parquet
    from pyarrow import ipc as arrow

    buffer = pa.BufferReader(content)
    try:
        if content.startswith(_PARQUET):
            table = parquet.read_table(buffer)
        elif content.startswith(_FEATHER):
            table = feather.read_table(buffer)
        else:
            table = arrow.open_stream(buffer).read_all()
        return from_arrow(table)
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path}: a damaged file: {str(error)[:200]}") from None
