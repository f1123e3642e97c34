from __future__ import annotations

import httpx
import pyarrow as pa
import pytest

from foretell.client.answers import Notes
from foretell.client.errors import InvalidInputError
from foretell.client.exchange import Ask
from foretell.client.frames import read
from foretell.client.pieces import Limits, Piece, parts, told_apart
from foretell.client.sending import MEDIA_TYPE, send

TABLE = pa.table({"sku": [*"abab"], "load": [1.0, 2.0, 3.0, 4.0]})
GIVEN = read(TABLE, "sku", None)
NOTES = Notes(model="model", model_version="2")
REQUEST = httpx.Request("POST", "http://server/forecast")


def refused(status: int, param: str) -> httpx.Response:
    error = {"message": "told", "param": param, "type": "some"}
    return httpx.Response(status, json={"error": error}, request=REQUEST)


def sent(pieces: list[Piece], *answers: httpx.Response) -> tuple[list[list[str]], list[Ask]]:
    """The series of each answer, and what was asked."""

    def names(_: httpx.Response, piece: Piece) -> tuple[list[str], Notes]:
        return piece.ids.to_pylist(), NOTES

    steps = send("forecast", GIVEN, pieces, {"model": "model", "horizon": 3}, 0.0, names)
    asked = [next(steps)]
    for answer in answers:
        try:
            asked.append(steps.send(answer))
        except StopIteration as end:
            return [names for names, _ in end.value], asked
    raise AssertionError(asked)


GOOD = httpx.Response(200, request=REQUEST)


def test_all_parts_are_answered_by_one_version() -> None:
    pieces = parts(told_apart(GIVEN.table), Limits(series=1), 1)
    found, asked = sent(pieces, GOOD, GOOD)
    assert found == [["a"], ["b"]]
    assert [ask.params["model"] for ask in asked] == ["model", "model@2"]
    assert asked[0].params["horizon"] == "3"
    assert asked[0].headers == {"Content-Type": MEDIA_TYPE}
    assert [pa.ipc.open_stream(ask.content).read_all()["load"].to_pylist() for ask in asked] == [
        [1, 3],
        [2, 4],
    ]


def test_what_is_too_large_goes_in_halves() -> None:
    found, asked = sent([told_apart(GIVEN.table)], refused(413, "body"), GOOD, GOOD)
    assert found == [["a"], ["b"]]
    assert len(asked) == 3


def test_a_series_that_is_too_large_is_an_error() -> None:
    with pytest.raises(InvalidInputError, match="told"):
        sent([told_apart(GIVEN.table)], refused(413, "body"), refused(413, "body"))


def test_the_second_row_of_the_second_part() -> None:
    pieces = parts(told_apart(GIVEN.table), Limits(series=1), 1)
    with pytest.raises(InvalidInputError, match=r"^load\[3\]: told"):
        sent(pieces, GOOD, refused(422, "load[1]"))


def test_options_that_are_not_set_are_left_out() -> None:
    options = {"model": None, "horizon": 3, "quantiles": [0.1, 0.9], "missing": "ffill", "x": []}
    steps = send("forecast", GIVEN, [told_apart(GIVEN.table)], options, 0.0, lambda *_: ([], NOTES))
    ask = next(steps)
    assert isinstance(ask, Ask)
    assert ask.params == {"horizon": "3", "quantiles": "0.1,0.9", "missing": "ffill"}
