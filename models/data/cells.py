"""Tables as they come: text with separators, Parquet, Arrow, frames; not yet understood."""

from __future__ import annotations

import csv
import gzip
import io
import re
import warnings
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Protocol

import numpy as np
import pandas as pd

from foretell.bundle.nearness import suggestion
from foretell.models.data.errors import DataError
from foretell.models.data.numbers import MISSING, Mark, find_mark, is_text, read_numbers
from foretell.models.data.problems import Problems

# By a file's first bytes.
_GZIP, _PARQUET, _FEATHER, _ZIP = b"\x1f\x8b", b"PAR1", b"ARROW1", b"PK\x03\x04"
_UTF16 = (b"\xff\xfe", b"\xfe\xff")
# Lines with something in them, among which the names of the columns are looked for.
_HEAD = 20
_STREAMS = (".arrow", ".arrows", ".ipc")
_SEPARATORS = ",;\t|"
# Lines that begin so say something about the table.
_COMMENT = re.compile(rb"(?m)^#.*$")
_BLANK = re.compile(r"[\s,;|\"]*")
_NO_TABLE = re.compile(r"\s*(\{|\[\s*\{|<(!doctype|html|\?xml))", re.IGNORECASE)


class ArrowFrame(Protocol):
    """A frame of polars or another library, or a table of Arrow."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...


@dataclass
class Cells:
    """A table with a name for every column.

    Attributes:
        frame: Its rows; of a text, columns without a number in all rows are as they were written.
        decimal: The decimal mark of its texts.
        problems: Where to say what is wrong.
        notes: What was made of it.
    """

    frame: pd.DataFrame
    decimal: Mark
    problems: Problems
    notes: list[str] = field(default_factory=list)


def read_file(
    path: Path, decimal: Mark | None, texts: frozenset[str], named: Sequence[str] = ()
) -> Cells:
    """Read a file, whichever its format.

    Args:
        path: The file.
        decimal: Its decimal mark; found if not given.
        texts: Columns, in lower case, whose cells are names and no numbers.
        named: Columns that it has to have; of a text this is known before its rows are read.

    Raises:
        DataError: it is no table, or a text without one of these columns.
    """
    try:
        content = path.read_bytes()
        if content.startswith(_GZIP):
            content = gzip.decompress(content)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path}: {getattr(error, 'strerror', None) or error}") from None
    if content.startswith(_ZIP):
        content = _unzip(path, content)
    is_stream = path.suffix.lower() in _STREAMS
    if content.startswith((_PARQUET, _FEATHER)) or is_stream:
        return of_frame(_read_binary(path, content), str(path))
    return _read_text(path, content, decimal, texts, named)


def of_frame(given: pd.DataFrame | ArrowFrame, name: str = "the frame") -> Cells:
    """The table that a frame is.

    Args:
        given: Of pandas, or of any library that gives its frames as Arrow streams.
        name: What messages call it.

    Raises:
        DataError: it has two columns of one name.
        TypeError: it is no frame.
    """
    if isinstance(given, pd.DataFrame):
        frame = given
    elif isinstance(given, pd.Series) or not hasattr(given, "__arrow_c_stream__"):
        raise TypeError(f"expected a frame or a table of Arrow, got a {type(given).__name__}")
    else:
        import pyarrow as pa

        frame = pa.table(given).to_pandas()
    # Numbers without a name count the rows.
    counts = frame.index.name is None and pd.api.types.is_integer_dtype(frame.index)
    frame = frame.reset_index(drop=counts)
    frame.columns = pd.Index([str(name) for name in frame.columns])
    _check_names(name, list(frame.columns), "")
    return Cells(frame, ".", Problems(name, "row", 0))


def _unzip(path: Path, content: bytes) -> bytes:
    """The one file that a zip file holds; a spreadsheet is one of several."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            # Those of a Mac say nothing of the table.
            (name,) = (each for each in archive.namelist() if not each.startswith("__MACOSX/"))
            return archive.read(name)
    except (ValueError, RuntimeError, zipfile.BadZipFile, zlib.error):
        raise DataError(
            f"{path}: a spreadsheet, or no zip file of one table; save it as CSV or Parquet"
        ) from None


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
        frame: pd.DataFrame = table.to_pandas()
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path}: a damaged file: {str(error)[:200]}") from None
    return frame


def _read_text(
    path: Path,
    content: bytes,
    decimal: Mark | None,
    texts: frozenset[str],
    named: Sequence[str],
) -> Cells:
    text, content = _decode(path, content)
    if _NO_TABLE.match(text):
        raise DataError(f"{path}: JSON or HTML and no table; save it as CSV or Parquet")
    header, separator, names = _find_header(path, text)
    place = f"line {header + 1}: "
    if len(names) < 2:
        raise DataError(
            f"{path}: {place}expected at least two columns, separated by commas, semicolons or tabs"
        )
    _check_names(str(path), names, place)
    if _holds_data(names):
        raise DataError(
            f"{path}: {place}no names of columns but data; add a line with a name for each column, "
            "without a # before it"
        )
    for name in named:
        # A column without a name is called so later.
        if name not in (*names, "unnamed"):
            raise DataError(f"{path}: {place}no column {name!r}; {suggestion(name, names)}")
    names = [name or f" {i}" for i, name in enumerate(names)]
    above = any(not _BLANK.fullmatch(each) for each in islice(io.StringIO(text), header))
    # As large as the file.
    del text
    cells = Cells(pd.DataFrame(), decimal or ".", Problems(str(path), "line", header + 2))
    if above:
        cells.notes.append(f"the columns' names are in line {header + 1}; above is no table")
    cells.frame = _parse(path, content, header, separator, names, cells.decimal, texts)
    if decimal is None:
        columns = [cells.frame[name] for name in names if is_text(cells.frame[name])]
        found = find_mark(columns)
        has_points = any(
            cells.frame[name].dtype == np.float64 and (cells.frame[name] % 1 > 0).any()
            for name in names
        )
        if found is None and not has_points:
            raise DataError(
                f"{path}: {_both_ways(columns)}; --decimal . or --decimal , says which it is"
            )
        if found == ",":
            cells.decimal = found
            cells.frame = _parse(path, content, header, separator, names, found, texts)
    cells.frame = _without_nameless(cells.frame, f"{path}: {place}").dropna(how="all")
    return cells


def _without_nameless(frame: pd.DataFrame, place: str) -> pd.DataFrame:
    """Without columns of neither name nor value, as spreadsheets write them."""
    nameless = {name for name in frame.columns if name.startswith(" ")}
    filled = {name for name in nameless if frame[name].notna().any()}
    if len(filled) > 1:
        raise DataError(f"{place}two columns have no name; rename one")
    return frame.drop(columns=nameless - filled).rename(columns=dict.fromkeys(filled, ""))


def _decode(path: Path, content: bytes) -> tuple[str, bytes]:
    """The text, with nothing left of comments but their lines; and its bytes in UTF-8."""
    try:
        if content.startswith(_UTF16):
            content = content.decode("utf-16").encode()
        if b"\n" not in content:
            content = content.replace(b"\r", b"\n")
        content = _COMMENT.sub(b"", content.removeprefix(b"\xef\xbb\xbf"))
        return content.decode(), content
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path}: not UTF-8 text (byte {error.start}); save it as CSV in UTF-8, or as Parquet"
        ) from None


def _split(line: str, separator: str) -> list[str]:
    try:
        return next(csv.reader([line], delimiter=separator), [])
    except csv.Error:
        return [line]


def _find_header(path: Path, text: str) -> tuple[int, str, list[str]]:
    """The line of the columns' names, what separates them, and the names.

    It is the first one, or below lines that are no part of the table: the first that has as many
    cells as most of the lines after it, more than a title alone in them, and no numbers.
    """
    lines = enumerate(io.StringIO(text))
    filled = list(islice(((i, line) for i, line in lines if not _BLANK.fullmatch(line)), _HEAD))
    if not filled:
        raise DataError(f"{path}: the file is empty")

    def fit(separator: str) -> tuple[int, int]:
        """How many lines have as many cells as most have, and how many cells that are."""
        widths = [len(_split(line, separator)) for _, line in filled]
        width = max(widths, key=widths.count)
        return (widths.count(width), width) if width > 1 else (0, 1)

    separator = max(_SEPARATORS, key=fit)
    _, width = fit(separator)
    rows = [(i, [cell.strip() for cell in _split(line, separator)]) for i, line in filled]
    whole = ((i, row) for i, row in rows if len(row) == width and (not row[0] or any(row[1:])))
    first = next(whole, rows[0])
    header, names = rows[0] if len(rows[0][1]) > width or _holds_data(first[1]) else first
    return header, separator, names


def _check_names(file: str, names: list[str], place: str) -> None:
    for i, name in enumerate(names):
        if name and name in names[:i]:
            raise DataError(f"{file}: {place}two columns are called {name!r}; rename one")


def _holds_data(names: list[str]) -> bool:
    """Whether all but one are numbers, in place of names."""
    given = pd.Series([name for name in names if name], dtype="str")
    numbers = read_numbers(given, ".")
    count = int((~numbers.wrong & ~numbers.missing).sum())
    return len(given) > 1 and count >= len(given) - 1


def _parse(
    path: Path,
    content: bytes,
    header: int,
    separator: str,
    names: list[str],
    decimal: Mark,
    texts: frozenset[str],
) -> pd.DataFrame:
    kept = {name for name in names if name.lower() in texts}
    try:
        with warnings.catch_warnings():
            # Of a first row that is longer than the header, which `_check_widths` tells.
            warnings.simplefilter("error", pd.errors.ParserWarning)
            frame = pd.read_csv(
                io.BytesIO(content),
                sep=separator,
                header=None,
                names=names,
                skiprows=header + 1,
                index_col=False,
                dtype=dict.fromkeys(kept, "str"),
                decimal=decimal,
                keep_default_na=False,
                na_values={name: list(MISSING) for name in names if name not in kept},
                skip_blank_lines=False,
                skipinitialspace=True,
                low_memory=False,
            )
    except (pd.errors.ParserError, pd.errors.ParserWarning) as error:
        _check_widths(path, content, separator, header, len(names))
        reason = str(error).removeprefix("Error tokenizing data. C error: ").strip()
        raise DataError(f"{path}: not a CSV table: {reason}") from None
    except pd.errors.EmptyDataError:
        return pd.DataFrame({name: [] for name in names})
    for name in kept:
        frame[name] = frame[name].where(frame[name].str.strip() != "")
    return frame


def _check_widths(path: Path, content: bytes, separator: str, header: int, width: int) -> None:
    """Name the rows with more cells than there are columns."""
    problems = Problems(str(path), "line", 1)
    rows = csv.reader(io.StringIO(content.decode(), newline=""), delimiter=separator)
    long: dict[int, list[int]] = {}
    try:
        for row in rows:
            if len(row) > width and rows.line_num > header + 1:
                long.setdefault(len(row), []).append(rows.line_num - 1)
    except csv.Error:
        return
    for cells, lines in long.items():
        problems.add(
            f"{cells} cells, and there are {width} columns; quote a cell that holds the separator "
            f"{separator!r}, or name all columns",
            lines,
        )
    problems.check()


def _both_ways(columns: list[pd.Series]) -> str:
    for cells in columns:
        found = [read_numbers(cells, mark).values for mark in (".", ",")]
        differs = np.flatnonzero(~((found[0] == found[1]) | np.isnan(found[0] + found[1])))
        if len(differs):
            row = differs[0]
            return (
                f"numbers such as {cells.iloc[row]!r} can be read as {found[0][row]:.10g} and as "
                f"{found[1][row]:.10g}"
            )
    raise AssertionError("no number differs")
