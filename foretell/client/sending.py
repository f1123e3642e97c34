"""Sends tables to the server, in as many requests as needed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import httpx
import pyarrow as pa
from pyarrow import ipc

from foretell.client.answers import Notes
from foretell.client.errors import ForetellError
from foretell.client.exchange import Ask, Steps, call
from foretell.client.frames import TIME, Given
from foretell.client.pieces import Piece

MEDIA_TYPE = "application/vnd.apache.arrow.stream"

Read = TypeVar("Read")

_TOO_LARGE = 413


def send(
    path: str,
    given: Given[Any],
    waiting: list[Piece],
    options: Mapping[str, object],
    retry_for: float,
    read: Callable[[httpx.Response, Piece], tuple[Read, Notes]],
) -> Steps[list[tuple[Read, Notes]]]:
    """Send a table, and read the answers.

    All parts go to the version of the model that answers the first part. Places in the notes become
    places of the caller's frame.

    Args:
        path: Path of the request.
        given: The caller's frame.
        waiting: Parts of its table.
        options: Query parameters; options that are None are left out.
        retry_for: Seconds within which a request is retried; see `call`.
        read: Reads an answer and its notes.

    Raises:
        ForetellError: a part has no answer; its place is in the caller's frame.
    """
    found, parameters = [], _parameters(options)
    while waiting:
        piece, *waiting = waiting
        ask = Ask("POST", path, parameters, _written(piece.table), {"Content-Type": MEDIA_TYPE})
        try:
            response = yield from call(ask, retry_for)
        except ForetellError as error:
            halves = piece.halves() if error.status == _TOO_LARGE else []
            if not halves:
                raise _placed(error, piece, given) from None
            waiting = [*halves, *waiting]
            continue
        answer, notes = read(response, piece)
        for notice in (*notes.errors, *notes.warnings):
            notice.place = given.named(piece.placed(notice.place))
        parameters = {**parameters, "model": f"{notes.model}@{notes.model_version}"}
        found.append((answer, notes))
    return found


def _placed(error: ForetellError, piece: Piece, given: Given[Any]) -> ForetellError:
    """The error, with the caller's column names and rows."""
    if given.id_column is None and (error.place or "").startswith(f"{TIME}["):
        error.message += "; if these are several series, id_column=… separates them"
    error.place = given.named(piece.placed(error.place))
    if given.time_column is not None:
        # The server's message names the column in example code.
        error.message = error.message.replace(f"'{TIME}'", f"'{given.time_column}'")
    return error


def _written(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    written: bytes = sink.getvalue().to_pybytes()
    return written


def _parameters(options: Mapping[str, object]) -> dict[str, str]:
    found = {}
    for name, value in options.items():
        if isinstance(value, Iterable) and not isinstance(value, str):
            value = ",".join(map(str, value)) or None
        if value is not None:
            found[name] = str(value)
    return found
