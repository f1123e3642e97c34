"""Covariates in tables: kinds, types, gaps, and rows of the future."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from foretell.bundle.covariates import Covariate, Covariates
from foretell.data.errors import DataError
from foretell.data.panel import Panel
from foretell.data.reading import Reading, read, read_frame
from foretell.data.source import DataSource
from foretell.data.splits import Splits
from tests.data.panels import DAYS, read_text, refusal, text, write

HEADER = "date,sales,price,open,promo"
PROMOS = ("none", "sale", "none", "flyer")
# Numbers, truth values and categories, one of which is called none.
ROWS = [
    f"{day},{10 + i},{i / 4},{str(i % 2 == 0).lower()},{PROMOS[i % 4]}"
    for i, day in enumerate(DAYS)
]
PROMO = Covariate(name="promo", type="category", categories=("flyer", "none", "sale"))
PRICE, OPEN = Covariate(name="price"), Covariate(name="open", type="boolean")


def with_cells(cells: dict[int, str]) -> str:
    """The rows, some of which are others."""
    return text(*(cells.get(i, row) for i, row in enumerate(ROWS)), header=HEADER)


def test_future_covariates_are_codes_beside_the_channels(tmp_path: Path) -> None:
    panel = read_text(tmp_path, with_cells({}), future_covariates="promo,price,open")
    assert panel.channels == ("sales",)
    assert panel.covariates == Covariates(future=(PROMO, PRICE, OPEN))
    (table,) = panel.tables
    assert table.covariates is not None
    assert table.covariates.tolist() == [[(1, 2, 1, 0)[i % 4], i / 4, 1 - i % 2] for i in range(10)]
    assert (table.static, table.ahead) == (None, None)
    assert panel.notes == ()


def test_past_covariates_are_channels_after_the_others(tmp_path: Path) -> None:
    panel = read_text(tmp_path, with_cells({}), past_covariates="promo,price")
    assert panel.channels == ("sales", "open", "promo=flyer", "promo=none", "promo=sale", "price")
    assert panel.covariates == Covariates(past=(PROMO, PRICE))
    (table,) = panel.tables
    assert table.values[:4, 2:].tolist() == [[0, 1, 0, 0], [0, 0, 1, 0.25], [0, 1, 0, 0.5],
                                             [1, 0, 0, 0.75]]  # fmt: skip
    assert table.covariates is None


def test_columns_that_no_option_names_stay_channels(tmp_path: Path) -> None:
    plain = read_text(tmp_path, with_cells({}))
    assert plain.channels == ("sales", "price", "open")
    assert plain.covariates is None
    assert plain.notes == ("columns that hold texts are left out: promo",)


@pytest.mark.parametrize(
    ("cells", "type_"),
    [
        ([0, 1, 0], "number"),
        (["0", "1", "0"], "number"),
        ([True, False, True], "boolean"),
        ([True, None, False], "boolean"),
        (["True", "FALSE", "true"], "boolean"),
        (["yes", "no", "no"], "category"),
        (["none", "none", "none"], "category"),
        (pd.Categorical([3, 1, 3]), "category"),
        (["1.5", "n.a.", "2"], "number"),
        (pd.array([1, 2, None], "Int64"), "number"),
    ],
)
def test_the_type_is_that_of_the_cells(cells: object, type_: str) -> None:
    frame = pd.DataFrame({"ds": DAYS[:3], "y": [1, 2, 3], "x": cells})
    panel = read_frame(frame, Reading(future_covariates=("x",), missing="ffill"))
    assert panel.covariates is not None
    assert panel.covariates.future[0].type == type_


STORES = [
    f"{store},{day},{i},{region},{size}"
    for store, region, size in (("a", "north", 4.5), ("b", "south", 7))
    for i, day in enumerate(DAYS)
]


def test_static_covariates_have_one_value_for_each_series(tmp_path: Path) -> None:
    header = "unique_id,ds,y,region,size"
    content = text(*STORES, header=header)
    # Empty cells of a series take its value.
    content = content.replace("a,2020-01-03,2,north,4.5", "a,2020-01-03,2,,")
    panel = read_text(tmp_path, content, static_covariates="size,region")
    regions = Covariate(name="region", type="category", categories=("north", "south"))
    assert panel.covariates == Covariates(static=(Covariate(name="size"), regions))
    found = {table.series: table.static for table in panel.tables}
    assert {name: None if own is None else own.tolist() for name, own in found.items()} == {
        "a": [4.5, 0],
        "b": [7, 1],
    }
    wrong = content.replace("b,2020-01-04,3,south,7", "b,2020-01-04,3,east,7")
    assert refusal(tmp_path, wrong, static_covariates="region,size").endswith(
        "line 15, column 'region': 'east' besides 'south' of series 'b'; a static covariate has "
        "one value for each series: correct it, or read it with --future-covariates or "
        "--past-covariates"
    )
    without = content.replace(",north,4.5", ",,4.5")
    assert "lines 2, 3, 4, 5 and 6 more, column 'region': no value of series 'a'; write" in refusal(
        tmp_path, without, static_covariates="region,size"
    )


def test_a_wrong_static_number_is_one_problem(tmp_path: Path) -> None:
    content = text(*STORES, header="unique_id,ds,y,region,size").replace(",south,7", ",south,big")
    message = refusal(tmp_path, content, static_covariates="size")
    assert message.endswith(
        "column 'size': 'big' is no finite number; correct it, or leave the cell empty with "
        "--missing interpolate"
    )


GAPS = {3: f"{DAYS[3]},13,,,", 0: f"{DAYS[0]},10,0,,"}


@pytest.mark.parametrize(
    ("missing", "prices"), [("interpolate", [0.5, 0.75, 1]), ("ffill", [0.5, 0.5, 1])]
)
def test_gaps_are_filled_as_in_series(tmp_path: Path, missing: str, prices: list[float]) -> None:
    options = {"future_covariates": "price,open,promo", "missing": missing}
    panel = read_text(tmp_path, with_cells(GAPS), **options)
    (table,) = panel.tables
    assert table.covariates is not None
    price, opened, promo = table.covariates.T
    assert price[2:5].tolist() == prices
    # A truth value and a category repeat the one before, the first ones that after.
    assert opened[[0, 1, 3]].tolist() == [0, 0, 1]
    assert promo[[0, 1, 2, 3]].tolist() == [2, 2, 1, 1]
    assert table.filled is None
    assert panel.notes == ("filled in: 5 of 30 covariates (16.7%)",)


def test_gaps_are_refused_with_their_places(tmp_path: Path) -> None:
    message = refusal(tmp_path, with_cells(GAPS), future_covariates="open", past_covariates="promo")
    assert "lines 2 and 5, column 'open': no value; --missing interpolate or" in message
    assert message.count("column 'promo': no value") == 1


def test_missing_rows_have_covariates_too(tmp_path: Path) -> None:
    content = text(*(row for i, row in enumerate(ROWS) if i not in (4, 5)), header=HEADER)
    options = {"future_covariates": "price,promo", "past_covariates": "open"}
    (table,) = read_text(tmp_path, content, missing="interpolate", **options).tables
    assert table.covariates is not None
    assert table.filled is not None
    assert table.covariates[3:7].tolist() == [[0.75, 0], [1, 0], [1.25, 0], [1.5, 1]]
    assert table.values[3:7].tolist() == [[13, 0], [14, 0], [15, 0], [16, 1]]
    assert np.flatnonzero(table.filled.all(axis=1)).tolist() == [4, 5]


def test_a_long_gap_of_a_covariate_splits_a_series(tmp_path: Path) -> None:
    cells = {i: f"{DAYS[i]},{10 + i},,true,none" for i in (4, 5, 6)}
    panel = read_text(
        tmp_path, with_cells(cells), future_covariates="price", missing="ffill", max_gap=2
    )
    assert [len(table) for table in panel.tables] == [4, 3]


COMING = [f"2020-01-{day},,{day},true,sale" for day in (11, 12, 13)]


def test_rows_of_the_future_follow_the_series(tmp_path: Path) -> None:
    content = text(*ROWS, *COMING, header=HEADER)
    options = {"future_covariates": "price,promo", "past_covariates": "open"}
    panel = read_text(tmp_path, content, **options)
    (table,) = panel.tables
    assert len(table) == 10
    assert table.ahead is not None
    assert table.ahead.tolist() == [[11, 2], [12, 2], [13, 2]]
    note = "3 rows after the last values have covariates alone: they are of the future"
    assert panel.notes == (note,)
    # Without future covariates such rows have a missing value.
    assert "lines 12, 13 and 14, column 'sales': no value" in refusal(tmp_path, content)


def test_gaps_of_the_future_are_filled_and_long_ones_end_it(tmp_path: Path) -> None:
    content = text(*ROWS, COMING[1], "2020-01-16,,16,true,flyer", header=HEADER)
    (table,) = read_text(
        tmp_path, content, future_covariates="price,promo,open", missing="interpolate", max_gap=3
    ).tables
    assert table.ahead is not None
    # Day 10 has price 2.25 and the promo sale.
    assert table.ahead[:, 0].tolist() == [7.125, 12, 13, 14, 15, 16]
    assert table.ahead[:, 1].tolist() == [2, 2, 2, 2, 2, 0]
    (table,) = read_text(
        tmp_path, content, future_covariates="price,promo,open", missing="ffill", max_gap=2
    ).tables
    assert table.ahead is not None
    assert table.ahead[:, :2].tolist() == [[2.25, 2], [12, 2]]


def test_series_that_end_apart_have_futures_of_their_own(tmp_path: Path) -> None:
    rows = [f"{name},{day},{i if i < end else ''},{i}" for name, end in (("a", 8), ("b", 6))
            for i, day in enumerate(DAYS)]  # fmt: skip
    panel = read_text(tmp_path, text(*rows, header="id,ds,y,x"), future_covariates="x")
    aheads = [None if table.ahead is None else table.ahead[:, 0].tolist() for table in panel.tables]
    assert aheads == [[8, 9], [6, 7, 8, 9]]


def test_the_last_rows_are_those_with_values(tmp_path: Path) -> None:
    path = write(tmp_path, text(*ROWS, *COMING, header=HEADER))
    panel = read(path, Reading(future_covariates=("price", "open")), last=4)
    (table,) = panel.tables
    assert table.values[:, 0].tolist() == [16, 17, 18, 19]
    assert table.ahead is not None
    assert table.ahead[:, 0].tolist() == [11, 12, 13]


WRONG = [
    ({"future_covariates": "prise"}, "no column 'prise'; did you mean 'price'?"),
    ({"static_covariates": "date2"}, "no column 'date2'"),
    ({"future_covariates": "price", "channels": "sales,promo=x"}, "no column 'promo=x'"),
    (
        {"past_covariates": "promo", "channels": "sales,promo"},
        "past covariate 'promo': expected numbers, and it holds categories",
    ),
]


@pytest.mark.parametrize(("options", "message"), WRONG)
def test_unknown_columns_are_named(tmp_path: Path, options: dict[str, str], message: str) -> None:
    assert message in refusal(tmp_path, with_cells({}), **options)


def test_wrong_numbers_and_times_are_refused(tmp_path: Path) -> None:
    content = with_cells({2: f"{DAYS[2]},12,dear,true,none"})
    assert "line 4, column 'price': 'dear' is no finite number" in refusal(
        tmp_path, content, future_covariates="price"
    )
    frame = pd.DataFrame({"ds": DAYS, "y": range(10), "at": pd.Timestamp(0)})
    with pytest.raises(ValueError, match="column 'at' holds times and no covariate"):
        read_frame(frame, Reading(future_covariates=("at",)))


@pytest.mark.parametrize("kind", ["future", "past", "static"])
def test_a_column_of_too_many_categories_is_refused(kind: str) -> None:
    rows = 24 * 50
    times = pd.date_range("2024-01-01", periods=rows, freq="h")
    frame = pd.DataFrame({"ds": times, "y": range(rows), "who": [f"n{i}" for i in range(rows)]})
    reading = Reading.model_validate({f"{kind}_covariates": "who"})
    with pytest.raises(DataError) as raised:
        read_frame(frame, reading)
    assert str(raised.value) == (
        "the frame: column 'who' has 1,200 categories, and at most 1,000 are read; if it names the "
        "series, give it as --id-column; otherwise join rare ones, or leave it out"
    )


@pytest.mark.parametrize(
    "cells",
    [[1, 2, 2], ["01", "02", "02"], ["1.0", "2.0", "2.0"], [1.0, 2.0, 2.0], ["1", "02", "2.0"]],
)
def test_numbers_stand_for_the_categories_with_their_values(
    tmp_path: Path, cells: list[object]
) -> None:
    frame = pd.DataFrame({"ds": DAYS[:3], "y": range(3), "x": cells})
    frame.to_csv(tmp_path / "data.csv", index=False)
    reading = Reading(past_covariates=("x",), channels=("y", "x=02", "x=01", "x=A"))
    for panel in (read_frame(frame, reading), read(tmp_path / "data.csv", reading)):
        assert panel.channels == ("y", "x=02", "x=01", "x=A")
        assert panel.tables[0].values[:, 1:].tolist() == [[0, 1, 0], [1, 0, 0], [1, 0, 0]]


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"future_covariates": "a,b,a"}, "future_covariates"),
        ({"future_covariates": "a", "past_covariates": "a"}, "past_covariates"),
        ({"past_covariates": "a", "static_covariates": "b,a"}, "static_covariates"),
        ({"channels": "a", "future_covariates": "a"}, "future_covariates"),
    ],
)
def test_a_column_is_of_one_kind(options: dict[str, str], field: str) -> None:
    with pytest.raises(ValidationError, match=f"(?s){field}.*'a' is named"):
        Reading.model_validate(options)


def test_columns_of_covariates_are_neither_times_nor_names() -> None:
    frame = pd.DataFrame({"hour": [5, 6, 7], "id": ["x", "y", "x"], "ds": DAYS[:3], "y": range(3)})
    panel = read_frame(frame, Reading(future_covariates=("hour", "id")))
    assert panel.channels == ("y",)
    assert len(panel.series) == 1


def test_the_source_reads_the_same_again(tmp_path: Path) -> None:
    options = {"future_covariates": "price", "past_covariates": "promo,open"}
    panel = read_text(tmp_path, text(*ROWS, *COMING, header=HEADER), **options)
    source = DataSource.of(panel, Splits.by_fraction())
    assert source is not None
    again = DataSource.model_validate_json(source.model_dump_json())
    found = again.read(panel.channels, panel.frequency)
    assert found.fingerprint() == panel.fingerprint()
    # The categories of a model come first, in its order.
    some = again.read(("promo=sale", "sales", "open"), panel.frequency)
    assert some.channels == ("promo=sale", "sales", "open", "promo=flyer", "promo=none")
    assert some.tables[0].values[:2].tolist() == [[0, 10, 1, 0, 1], [1, 11, 0, 0, 0]]


@given(st.lists(st.sampled_from(["", "x", "y", "z"]), min_size=4, max_size=9))
def test_a_category_takes_the_nearest_before_or_after(cells: list[str]) -> None:
    if not any(cells):
        return
    frame = pd.DataFrame({"ds": DAYS[: len(cells)], "y": range(len(cells)), "x": cells})
    panel: Panel = read_frame(frame, Reading(future_covariates=("x",), missing="interpolate"))
    (covariate,) = panel.covariates.future if panel.covariates else ()
    codes = panel.tables[0].covariates
    assert codes is not None
    for i, code in enumerate(codes[:, 0]):
        before = [each for each in cells[: i + 1] if each]
        after = [each for each in cells[i:] if each]
        assert covariate.categories[int(code)] == (before[-1] if before else after[0])
