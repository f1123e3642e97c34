"""Text files of separated values."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from foretell.bundle.nearness import suggestion
from foretell.data.cells import Cells, check_names, choose_mark
from foretell.data.errors import DataError
from foretell.data.header import (
    COMMENT,
    Header,
    find_header,
    holds_data,
    is_comment,
    records,
)
from foretell.data.missing import MISSING, NO_CATEGORY
from foretell.data.numbers import Mark, is_text
from foretell.data.problems import Problems
from foretell.data.timestamps import looks_like_timestamp
from foretell.data.wide import may_be_times

_UTF16 = (b"\xff\xfe", b"\xfe\xff")
_NO_TABLE = re.compile(r"\s*(\{|\[\s*\{|<(!doctype|html|\?xml))", re.IGNORECASE)
_TSF = re.compile(r"(?im)^@(relation|attribute|data)\b")


class Texts(NamedTuple):
    """Columns that hold names.

    Attributes:
        ids: Names of series and no numbers, in lower case.
        covariates: Numbers or categories.
        every: Whether all other columns may be covariates.
    """

    ids: frozenset[str]
    covariates: frozenset[str] = frozenset()
    every: bool = False


def read_text(
    path: Path,
    content: bytes,
    decimal: Mark | None,
    texts: Texts,
    named: Sequence[str],
) -> Cells:
    """Read a text file.

    Args:
        path: The file.
        content: Bytes of the file.
        decimal: Decimal mark; found if not given.
        texts: Columns that hold or may hold names.
        named: Columns that the file must have.

    Raises:
        DataError: it is not a table, or lacks one of these columns.
    """
    text = _decode(path, content)
    if _NO_TABLE.match(text):
        raise DataError(f"{path}: JSON or HTML and no table; save it as CSV or Parquet")
    if _TSF.search(text, 0, 100_000):
        raise DataError(
            f"{path}: a file of attributes (.tsf, .ts, .arff) and no table; save it as CSV with a "
            "row for each time and series, in columns unique_id, ds and y"
        )
    header = find_header(path, text)
    place = f"line {header.line + 1}: "
    names = header.names
    if len(names) < 2:
        raise DataError(
            f"{path}: {place}expected at least two columns, separated by commas, semicolons or tabs"
        )
    check_names(str(path), names, place)
    if holds_data(names) and not may_be_times(names) and not _are_above_times(text, header):
        raise DataError(
            f"{path}: {place}no names of columns but data; add a line with a name for each column"
        )
    for name in named:
        # A column without a name gets this name later.
        if name not in (*names, "unnamed"):
            raise DataError(f"{path}: {place}no column {name!r}; {suggestion(name, names)}")
    names = [name or f" {i}" for i, name in enumerate(names)]
    problems = Problems(str(path), "line", header.first + 1)
    cells = Cells(pd.DataFrame(), decimal or ".", problems, notes=header.notes)
    content, comments = _without_comments(text, header)
    # Free the memory; the text is as large as the file.
    del text
    if comments:
        cells.notes.append(
            f"{comments:,} lines that begin with # are passed over"
            if comments > 1
            else "a line that begins with # is passed over"
        )
    cells.frame = _parse(path, content, header, names, cells.decimal, texts)
    if decimal is None:
        cells.decimal = _find_mark(path, content, header, cells.frame, texts)
        if cells.decimal == ",":
            cells.frame = _parse(path, content, header, names, ",", texts)
    cells.frame = _without_nameless(cells.frame, f"{path}: {place}").dropna(how="all")
    return cells


def _find_mark(
    path: Path, content: bytes, header: Header, frame: pd.DataFrame, texts: Texts
) -> Mark:
    """The decimal mark, from columns of texts, and from possible thousands beside semicolons."""
    names = list(frame.columns)
    columns = [frame[name] for name in names if is_text(frame[name])]
    floats = {name for name in names if frame[name].dtype == "float64"}
    unsure = set()
    if header.separator == ";":
        unsure = {name for name in floats if _may_be_thousands(frame[name])}
    points = any((frame[name] % 1 > 0).any() for name in floats - unsure)
    if unsure and not points:
        kept = frozenset(name.lower() for name in unsure)
        as_texts = _parse(path, content, header, names, ".", texts._replace(ids=texts.ids | kept))
        columns += [as_texts[name] for name in names if name in unsure]
    return choose_mark(str(path), columns, has_points=points)


def _may_be_thousands(numbers: pd.Series) -> bool:
    """Whether all fractions could be thousands, such as 1.5 from 1.500."""
    fractions = numbers[numbers % 1 > 0].abs()
    is_short = (fractions * 1000 - (fractions * 1000).round()).abs() < 1e-6
    return bool(fractions.between(1, 1000).all() and is_short.all())


def _are_above_times(text: str, header: Header) -> bool:
    """Whether the first column is times below a name; then numbers beside it are names too."""
    first = next(records(text, header.separator, header.start), None)
    return (
        first is not None
        and looks_like_timestamp(first.cells[0])
        and not looks_like_timestamp(header.names[0])
        and not header.names[0].isdigit()
    )


def _without_nameless(frame: pd.DataFrame, place: str) -> pd.DataFrame:
    """Drop columns that have neither a name nor values, which spreadsheets write."""
    nameless = {name for name in frame.columns if name.startswith(" ")}
    filled = {name for name in nameless if frame[name].notna().any()}
    if len(filled) > 1:
        raise DataError(f"{place}two columns have no name; rename one")
    return frame.drop(columns=nameless - filled).rename(columns=dict.fromkeys(filled, ""))


def _decode(path: Path, content: bytes) -> str:
    try:
        encoding = "utf-16" if content.startswith(_UTF16) else "utf-8-sig"
        text = content.decode(encoding)
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path}: not UTF-8 text (byte {error.start}); save it as CSV in UTF-8, or as Parquet"
        ) from None
    return text if "\n" in text else text.replace("\r", "\n")


def _without_comments(text: str, header: Header) -> tuple[bytes, int]:
    """The rows with comments left empty, and the number of comments, also above the names.

    A comment begins with `#`, and its first cell is not the name of a series.
    """
    start, found = header.start, header.comments
    if not text.startswith(COMMENT, start) and f"\n{COMMENT}" not in text[start:]:
        return text[start:].encode(), found
    width = len(header.names)
    marked = [
        record
        for record in records(text, header.separator, start)
        if text.startswith(COMMENT, record.start)
    ]
    # Names of series that begin with `#`; their rows may have fewer cells.
    names = {record.cells[0] for record in marked if not is_comment(record, width)}
    pieces = []
    for record in marked:
        if is_comment(record, width) and record.cells[0] not in names:
            pieces += [text[start : record.start], "\n"]
            start = record.end
            found += 1
    return "".join([*pieces, text[start:]]).encode(), found


def _parse(
    path: Path,
    content: bytes,
    header: Header,
    names: list[str],
    decimal: Mark,
    texts: Texts,
) -> pd.DataFrame:
    kept = {name for name in names if name.lower() in texts.ids}
    empty = {
        name: list(NO_CATEGORY if texts.every or name in texts.covariates else MISSING)
        for name in names
        if name not in kept
    }
    try:
        with warnings.catch_warnings():
            # For a first row that is longer than the header, which `_check_widths` reports.
            warnings.simplefilter("error", pd.errors.ParserWarning)
            frame = pd.read_csv(
                io.BytesIO(content),
                sep=header.separator,
                header=None,
                names=names,
                index_col=False,
                dtype=dict.fromkeys(kept, "str"),
                decimal=decimal,
                keep_default_na=False,
                na_values=empty,
                skip_blank_lines=False,
                skipinitialspace=True,
                low_memory=False,
            )
    except (pd.errors.ParserError, pd.errors.ParserWarning) as error:
        _check_widths(path, content, header)
        reason = str(error).removeprefix("Error tokenizing data. C error: ").strip()
        raise DataError(f"{path}: not a CSV table: {reason}") from None
    except pd.errors.EmptyDataError:
        return pd.DataFrame({name: [] for name in names})
    for name in kept:
        frame[name] = frame[name].where(frame[name].str.strip() != "")
    return frame


def _check_widths(path: Path, content: bytes, header: Header) -> None:
    """Report rows with more cells than there are columns."""
    problems = Problems(str(path), "line", header.first + 1)
    width = len(header.names)
    long: dict[int, list[int]] = {}
    for record in records(content.decode(), header.separator):
        if len(record.cells) > width:
            long.setdefault(len(record.cells), []).append(record.line)
    for cells, lines in long.items():
        problems.add(
            f"{cells} cells, and there are {width} columns; quote a cell that holds the separator "
            f"{header.separator!r}, or name all columns",
            lines,
        )
    problems.check()
