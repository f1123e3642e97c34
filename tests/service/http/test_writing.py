from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from foretell.service.http.protocol import Connection
from tests.service.http.wire import Wire, no_content, opened


def written(*steps: Callable[[Connection], object]) -> Wire:
    """The wire after the steps and one turn of the loop."""
    wire = Wire()

    async def write() -> None:
        writing = opened(no_content, wire)
        for step in steps:
            step(writing)
        await asyncio.sleep(0)

    asyncio.run(write())
    return wire


def piece(data: bytes) -> Callable[[Connection], object]:
    return lambda writing: writing.write(data)


def test_a_head_goes_out_with_its_body() -> None:
    assert written(piece(b"head "), piece(b"body")).sent == [b"head body"]


def test_a_head_without_a_body_goes_out_in_the_next_turn() -> None:
    assert written(piece(b"head")).sent == [b"head"]


def test_many_pieces_keep_their_order() -> None:
    pieces = [bytes([number]) for number in range(7)]
    wire = written(*map(piece, pieces))
    assert len(wire.sent) == 4
    assert b"".join(wire.sent) == b"".join(pieces)


def test_what_is_held_goes_out_before_the_end() -> None:
    wire = written(piece(b"head"), Connection.close, lambda writing: writing.is_closing() or 1 / 0)
    assert wire.sent == [b"head"]
    assert wire.ended


@pytest.mark.parametrize(
    "then",
    [
        lambda writing: None,
        Connection.close,
        Connection.flush,
        lambda writing: writing.write(b"body"),
    ],
)
def test_nothing_is_written_after_a_disconnect(
    then: Callable[[Connection], object],
) -> None:
    wire = Wire()

    async def write() -> None:
        writing = opened(no_content, wire)
        writing.write(b"head")
        wire.close()
        then(writing)
        await asyncio.sleep(0)

    asyncio.run(write())
    assert wire.sent == []


def test_an_empty_piece_is_one_too() -> None:
    assert b"".join(written(piece(b""), piece(b"body")).sent) == b"body"
