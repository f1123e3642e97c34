from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from foretell.client.pieces import Limits, Piece, parts, told_apart

ROWS = 4


def table(ids: list[object], kind: pa.DataType | None = None) -> pa.Table:
    """Each series is `ROWS` values from its number times 100, and series take turns."""
    names = ids * ROWS
    values = [100.0 * at + row for row in range(ROWS) for at in range(len(ids))]
    return pa.table({"unique_id": pa.array(names, kind), "load": values})


def series(pieces: list[Piece]) -> list[list[float]]:
    """The first value of each series, by piece."""
    return [
        [group[0] for group in np.split(piece.table["load"].to_numpy(), piece.starts[1:-1])]
        for piece in pieces
    ]


def test_what_fits_is_one_piece_in_its_own_order() -> None:
    given = table(["b", "a"])
    (piece,) = parts(told_apart(given), Limits(), 1)
    assert piece.table is given
    assert piece.ids.to_pylist() == ["b", "a"]
    assert piece.placed("load[3]") == "load[3]"


@pytest.mark.parametrize(
    ("limits", "values"),
    [
        (Limits(series=2), 1),
        (Limits(values=25), 10),
        (Limits(size=2 * table([*"edcba"]).nbytes // 5 + 8), 1),
    ],
)
def test_series_are_parted_in_order_of_appearance(limits: Limits, values: int) -> None:
    pieces = parts(told_apart(table([*"edcba"])), limits, values)
    assert [piece.ids.to_pylist() for piece in pieces] == [["e", "d"], ["c", "b"], ["a"]]
    assert series(pieces) == [[0, 100], [200, 300], [400]]
    # The second row of the third of five that take turns.
    assert pieces[1].placed("load[1]") == "load[7]"
    assert pieces[1].placed("options.horizon") == "options.horizon"
    assert pieces[1].placed("other[1]") == "other[1]"


def test_a_series_is_never_parted() -> None:
    pieces = parts(told_apart(table(["a", "b"])), Limits(size=1, values=1), 10)
    assert series(pieces) == [[0], [100]]
    assert [piece.halves() for piece in pieces] == [[], []]


def test_halves() -> None:
    whole = told_apart(table([3, 1, 2]))
    halves = whole.halves()
    assert [piece.ids.to_pylist() for piece in halves] == [[3], [1, 2]]
    assert series(halves) == [[0], [100, 200]]
    assert series(halves[1].halves()) == [[100], [200]]


@pytest.mark.parametrize(
    ("ids", "kind"),
    [
        (["a", None], None),
        ([[1], [2]], pa.list_(pa.int64())),
        ([], pa.string()),
    ],
)
def test_what_the_server_refuses_is_left_to_it(ids: list[object], kind: pa.DataType) -> None:
    given = table(ids, kind)
    assert [piece.table for piece in parts(told_apart(given), Limits(series=1), 1)] == [given]


def test_dictionaries_with_more_than_is_used() -> None:
    codes = pa.DictionaryArray.from_arrays([2, 0, 2, 0], ["a", "b", "c"])
    given = pa.table({"unique_id": codes, "load": [1.0, 2.0, 3.0, 4.0]})
    pieces = parts(told_apart(given), Limits(series=1), 1)
    assert [piece.ids.to_pylist() for piece in pieces] == [["c"], ["a"]]
    assert [piece.table["load"].to_pylist() for piece in pieces] == [[1, 3], [2, 4]]
