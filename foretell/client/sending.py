"""Tables to the server, in as many requests as it takes."""

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

    Args:
        path: What answers it.
        given: The caller's frame.
        waiting: Parts of its table.
        options: Those that are set become parameters of the URL.
        retry_for: As `call` has it.
        read: Reads an answer, and what the server notes on it: the version of the model that later
            parts are then sent to, and places, which are ones in the caller's frame afterwards.

    Raises:
        ForetellError: one of the parts has no answer; its place is one in the caller's frame.
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
        said, notes = read(response, piece)
        for told in (*notes.errors, *notes.warnings):
            told.place = given.named(piece.placed(told.place))
        parameters = {**parameters, "model": f"{notes.model}@{notes.model_version}"}
        found.append((said, notes))
    return found


def _placed(error: ForetellError, piece: Piece, given: Given[Any]) -> ForetellError:
    """An error with what the caller knows instead of what was sent."""
    if given.id_column is None and (error.place or "").startswith(f"{TIME}["):
        error.message += "; if these are several series, id_column=… tells them apart"
    error.place = given.named(piece.placed(error.place))
    if given.time_column is not None:
        # In the calls that convert it.
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
