"""Large JSON, read in pieces: no call holds the interpreter's lock for long.

A body is cut at commas (`cut`). Each piece is parsed by itself, and merged with the pieces before
it (`merge`).
"""

from __future__ import annotations

import re
from typing import Any

import orjson

from foretell.service.forecast.cut import Piece, pieces_of
from foretell.service.forecast.form import Form
from foretell.service.forecast.merge import Merged
from foretell.service.forecast.metadata import read_leniently

_PLACE = re.compile(r"line (\d+) column (\d+)")


def read_pieces(body: memoryview, form: Form, most: int) -> Any:  # noqa: ANN401 - any JSON
    """Read the JSON of the form's fields, with at most `most` items in a list of objects.

    Metadata become bytes, as by `echo`. A longer list keeps its length, but one item stands for all
    items beyond the limit. ValueError: the body is not JSON, with the place.
    """
    merged = Merged(form, most, body)
    for piece in pieces_of(body):
        is_strict = True
        try:
            value = orjson.loads(piece.text)
        except orjson.JSONDecodeError:
            is_strict = False
            try:
                value = read_leniently(piece.text)
            except ValueError as error:
                raise ValueError(_moved(str(error), body, piece)) from None
        merged.add(value, piece, is_strict=is_strict)
    return merged.value


def _moved(message: str, body: memoryview, piece: Piece) -> str:
    """The message of an error in a piece, with its place in the body."""
    before = bytes(body[: piece.start])
    lines, columns = before.count(b"\n"), piece.start - (before.rfind(b"\n") + 1)

    def move(found: re.Match[str]) -> str:
        line, column = int(found[1]), int(found[2])
        if line == 1:
            column = columns + max(1, column - piece.added)
        return f"line {lines + line} column {column}"

    return _PLACE.sub(move, message)
