"""Tables in parts: how they are parted, sent and answered together."""

from __future__ import annotations

import httpx
import numpy as np
import pyarrow as pa
import pytest

from foretell.client.answers import Notes, Notice, SeriesError, together
from foretell.client.errors import InvalidInputError
from foretell.client.exchange import Ask
from foretell.client.frames import read
from foretell.client.pieces import Limits, Piece, by_series, parts
from foretell.client.sending import MEDIA_TYPE, send

ROWS = 4


def table_of(ids: list[object], kind: pa.DataType | None = None) -> pa.Table:
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


def test_table_that_fits_is_one_piece_in_its_own_order() -> None:
    given = table_of(["b", "a"])
    (piece,) = parts(by_series(given), Limits(), 1)
    assert piece.table is given
    assert piece.ids.to_pylist() == ["b", "a"]
    assert piece.placed("load[3]") == "load[3]"


@pytest.mark.parametrize(
    ("limits", "values"),
    [
        (Limits(series=2), 1),
        (Limits(values=25), 10),
        (Limits(size=2 * table_of([*"edcba"]).nbytes // 5 + 8), 1),
    ],
)
def test_series_are_parted_in_order_of_appearance(limits: Limits, values: int) -> None:
    pieces = parts(by_series(table_of([*"edcba"])), limits, values)
    assert [piece.ids.to_pylist() for piece in pieces] == [["e", "d"], ["c", "b"], ["a"]]
    assert series(pieces) == [[0, 100], [200, 300], [400]]
    # Rows of five series alternate: row 7 is the second one of the third series.
    assert pieces[1].placed("load[1]") == "load[7]"
    assert pieces[1].placed("options.horizon") == "options.horizon"
    assert pieces[1].placed("other[1]") == "other[1]"


def test_series_is_never_parted() -> None:
    pieces = parts(by_series(table_of(["a", "b"])), Limits(size=1, values=1), 10)
    assert series(pieces) == [[0], [100]]
    assert [piece.halves() for piece in pieces] == [[], []]
    whole = by_series(table_of([3, 1, 2]))
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
def test_invalid_tables_are_sent_unchanged(ids: list[object], kind: pa.DataType) -> None:
    given = table_of(ids, kind)
    assert [piece.table for piece in parts(by_series(given), Limits(series=1), 1)] == [given]


def test_unused_values_of_dictionaries_are_not_sent() -> None:
    codes = pa.DictionaryArray.from_arrays([2, 0, 2, 0], ["a", "b", "c"])
    given = pa.table({"unique_id": codes, "load": [1.0, 2.0, 3.0, 4.0]})
    pieces = parts(by_series(given), Limits(series=1), 1)
    assert [piece.ids.to_pylist() for piece in pieces] == [["c"], ["a"]]
    assert [piece.table["load"].to_pylist() for piece in pieces] == [[1, 3], [2, 4]]


TABLE = pa.table({"sku": [*"abab"], "load": [1.0, 2.0, 3.0, 4.0]})
GIVEN = read(TABLE, "sku", None)
NOTES = Notes(model="model", model_version="2")
REQUEST = httpx.Request("POST", "http://server/forecast")


def refused(status: int, param: str) -> httpx.Response:
    error = {"message": "wrong", "param": param, "type": "some"}
    return httpx.Response(status, json={"error": error}, request=REQUEST)


def sent(pieces: list[Piece], *answers: httpx.Response) -> tuple[list[list[str]], list[Ask]]:
    """The series of each answer, and the requests."""

    def names(_: httpx.Response, piece: Piece) -> tuple[list[str], Notes]:
        return piece.ids.to_pylist(), NOTES

    steps = send("forecast", GIVEN, pieces, {"model": "model", "horizon": 3}, 0.0, names)
    requests = [next(steps)]
    for answer in answers:
        try:
            requests.append(steps.send(answer))
        except StopIteration as end:
            return [names for names, _ in end.value], requests
    raise AssertionError(requests)


GOOD = httpx.Response(200, request=REQUEST)


def test_parts_are_answered_by_one_version() -> None:
    pieces = parts(by_series(GIVEN.table), Limits(series=1), 1)
    found, requests = sent(pieces, GOOD, GOOD)
    assert found == [["a"], ["b"]]
    assert [ask.params["model"] for ask in requests] == ["model", "model@2"]
    assert requests[0].params["horizon"] == "3"
    assert requests[0].headers == {"Content-Type": MEDIA_TYPE}
    assert [pa.ipc.open_stream(ask.content).read_all()["load"].to_pylist() for ask in requests] == [
        [1, 3],
        [2, 4],
    ]


def test_table_that_is_too_large_goes_in_halves() -> None:
    found, requests = sent([by_series(GIVEN.table)], refused(413, "body"), GOOD, GOOD)
    assert found == [["a"], ["b"]]
    assert len(requests) == 3


def test_series_that_is_too_large_is_an_error() -> None:
    with pytest.raises(InvalidInputError, match="wrong"):
        sent([by_series(GIVEN.table)], refused(413, "body"), refused(413, "body"))


def test_errors_name_the_row_of_the_whole_table() -> None:
    pieces = parts(by_series(GIVEN.table), Limits(series=1), 1)
    with pytest.raises(InvalidInputError, match=r"^load\[3\]: wrong"):
        sent(pieces, GOOD, refused(422, "load[1]"))


def test_options_that_are_not_set_are_left_out() -> None:
    options = {"model": None, "horizon": 3, "quantiles": [0.1, 0.9], "missing": "ffill", "x": []}
    steps = send("forecast", GIVEN, [by_series(GIVEN.table)], options, 0.0, lambda *_: ([], NOTES))
    ask = next(steps)
    assert isinstance(ask, Ask)
    assert ask.params == {"horizon": "3", "quantiles": "0.1,0.9", "missing": "ffill"}


def notes(name: str) -> Notes:
    return Notes(
        model="load",
        model_version="1",
        errors=[SeriesError(kind="short", message="too short", series=name)],
        warnings=[Notice(kind="rolled", message="of all"), Notice(kind="far", message=name)],
        rolled_from=4,
        filled={name: {"load": 2}},
        masked={name: {"wind": 1}},
        ill_conditioned=[name],
    )


def test_notes_of_several_parts_are_merged() -> None:
    found = together([notes(name) for name in "abc"])
    assert [error.series for error in found.errors] == [*"abc"]
    assert [warning.message for warning in found.warnings] == ["of all", *"abc"]
    assert found.filled == {name: {"load": 2} for name in "abc"}
    assert found.masked == {name: {"wind": 1} for name in "abc"}
    assert found.ill_conditioned == [*"abc"]
    assert found.rolled_from == 4
