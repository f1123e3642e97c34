from datetime import timedelta

import numpy as np
import pytest

from foretell.models.data.errors import DataError
from foretell.models.data.timestamps import CellError, looks_like_timestamp, read_timestamps


@pytest.mark.parametrize(
    ("cells", "last"),
    [
        (["2024-03-01", "2024-03-02"], "2024-03-02"),
        (["2024-03-01 00:00:00", "2024-03-01 00:00:01"], "2024-03-01T00:00:01"),
        (["1990/1/1 0:00", "1990/1/2 0:00"], "1990-01-02"),
        (["3/30/2024", "3/31/2024"], "2024-03-31"),
        (["30/3/2024 5:00", "31/3/2024 6:00"], "2024-03-31T06:00"),
        (["1/12/2024", "1/13/2024"], "2024-01-13"),
        (["30.3.2024", "31.3.2024"], "2024-03-31"),
    ],
)
def test_reads_the_usual_forms(cells: list[str], last: str) -> None:
    moments = read_timestamps(cells)
    assert moments.walls[-1] == np.datetime64(last)
    assert moments.walls.dtype == np.dtype("M8[us]")
    assert moments.utc_offset is None


def test_keeps_an_offset_that_all_share() -> None:
    moments = read_timestamps(["2024-03-01T00:00Z", "2024-03-01T01:00+00:00"])
    assert moments.utc_offset == timedelta(0)


def test_refuses_to_guess_between_day_and_month() -> None:
    with pytest.raises(DataError, match="can be read as %m/%d/%Y and as %d/%m/%Y"):
        read_timestamps(["1/2/2024", "1/3/2024"])


@pytest.mark.parametrize(
    ("cells", "row", "message"),
    [
        (["2024-03-01", "never"], 1, "ISO 8601"),
        (["2024-03-01T00:00Z", "2024-03-01T01:00"], 1, "UTC offset differs"),
        (["2024-03-31T00:00+01:00", "2024-03-31T02:00+02:00"], 1, "UTC offset differs"),
        (["1/30/2024", "1/31/2024", "32/1/2024"], 2, "of the form %m/%d/%Y"),
    ],
)
def test_names_the_row(cells: list[str], row: int, message: str) -> None:
    with pytest.raises(CellError, match=message) as raised:
        read_timestamps(cells)
    assert raised.value.row == row


@pytest.mark.parametrize(
    ("cell", "expected"),
    [("2024-03-01", True), ("1/2/2024", True), ("20240301", False), ("5.8", False), ("x", False)],
)
def test_looks_like_timestamp(cell: str, expected: bool) -> None:
    assert looks_like_timestamp(cell) is expected
