import numpy as np
import pandas as pd
import pytest

from foretell.data.numbers import Mark, find_mark, read_numbers

NAN = np.nan


def column(*cells: object, dtype: object = "str") -> pd.Series:
    return pd.Series(cells, dtype=dtype)


@pytest.mark.parametrize(
    ("cells", "decimal", "expected"),
    [
        (["12,800.0", "-1,234,567", "5"], ".", [12800, -1234567, 5]),
        (["1.234,5", "12,5", "-1.000"], ",", [1234.5, 12.5, -1000]),
        (["1 234,5", "1'000", "1\u202f000"], ",", [1234.5, 1000, 1000]),
        (["True", "FALSE", "1e3"], ".", [1, 0, 1000]),
        ([" 5 ", "NA", "null", "-", ""], ".", [5, NAN, NAN, NAN, NAN]),
    ],
)
def test_common_notations_of_numbers_are_read(
    cells: list[str], decimal: Mark, expected: list[float]
) -> None:
    numbers = read_numbers(column(*cells), decimal)
    np.testing.assert_array_equal(numbers.values, expected)
    assert not numbers.wrong.any()
    assert numbers.missing.tolist() == np.isnan(expected).tolist()


@pytest.mark.parametrize(
    ("cell", "decimal"),
    [("12,5", "."), ("1,23,456", "."), ("12.5", ","), ("inf", "."), ("1e39", "."), ("x", ",")],
)
def test_other_texts_are_wrong(cell: str, decimal: Mark) -> None:
    numbers = read_numbers(column("1", cell), decimal)
    assert numbers.wrong.tolist() == [False, True]
    assert np.isnan(numbers.values[1])


def test_reads_columns_that_have_a_type() -> None:
    np.testing.assert_array_equal(read_numbers(column(1, 2, dtype="Int8"), ".").values, [1, 2])
    np.testing.assert_array_equal(read_numbers(column(True, False, dtype=bool), ".").values, [1, 0])
    mixed = read_numbers(column(True, None, dtype=object), ".")
    assert mixed.missing.tolist() == [False, True]
    assert read_numbers(column(1.5, np.inf, dtype=float), ".").wrong.tolist() == [False, True]


@pytest.mark.parametrize(
    ("columns", "mark"),
    [
        ([["1,5", "2,25"]], ","),
        ([["1,500", "2,250"]], None),
        ([["1,500", "2,250"], ["1.000,5", "2"]], ","),
        ([["1,500", "2,250.5"]], "."),
        # One number without thousands decides for the others.
        *(([[other, "7.500"]], ".") for other in ("0.125", "1234.567", "1.25", "12.3456")),
        ([["sun", "rain"]], "."),
        ([], "."),
    ],
)
def test_finds_the_decimal_mark(columns: list[list[str]], mark: Mark | None) -> None:
    assert find_mark([column(*cells) for cells in columns]) == mark


def test_column_of_texts_is_not_mostly_numbers() -> None:
    assert not read_numbers(column("sun", "rain", "1"), ".").mostly
    assert read_numbers(column("sun", "2", "1", ""), ".").mostly
