"""Forecasts of a frame."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypedDict, TypeVar, Unpack

import httpx
import pyarrow as pa
from pyarrow import ipc
from pydantic import ValidationError

from foretell.client.answers import Answer, Notes, PartialForecastError, together, warn
from foretell.client.errors import ServerError
from foretell.client.exchange import Steps
from foretell.client.frames import read
from foretell.client.pieces import Limits, Piece, by_series, parts
from foretell.client.sending import send

Frame = TypeVar("Frame")
Missing = Literal["error", "interpolate", "ffill", "mask"]
Calibration = Literal["stored", "history"]

_NOTES = b"foretell"
# Upper estimate of a model's default horizon, for the size of an answer.
_STEPS = 720


class FrameOptions(TypedDict, total=False):
    """Options of all calls with a frame."""

    model: str | None
    horizon: int | None
    missing: Missing | None
    id_column: str | None
    time_column: str | None


class ForecastOptions(FrameOptions, total=False):
    """The options of `Client.forecast`."""

    quantiles: Sequence[float] | None
    calibration: Calibration | None
    ledger: bool | None


def forecast(
    frame: Frame, retry_for: float, **options: Unpack[ForecastOptions]
) -> Steps[Answer[Frame]]:
    """Forecast every series of a frame; see `Client.forecast`."""
    given = read(frame, options.pop("id_column", None), options.pop("time_column", None))
    columns = given.table.num_columns * (1 + len(options.get("quantiles") or ()))
    values = columns * (options.get("horizon") or _STEPS)
    pieces = parts(by_series(given.table), Limits(), values)
    answers = yield from send("forecast", given, pieces, options, retry_for, _read)
    tables, notes = zip(*answers, strict=True)
    return Answer(given.back(pa.concat_tables(tables)), together(notes))


def sole_frame(answer: Answer[Frame], stacklevel: int) -> Frame:
    """The frame of an answer; its warnings become Python warnings.

    Args:
        answer: The answer.
        stacklevel: Stack level of the caller, as in `warnings.warn`.

    Raises:
        PartialForecastError: a series has no forecast.
    """
    warn(answer.notes.warnings, stacklevel + 1)
    if answer.notes.errors:
        raise PartialForecastError(answer)
    return answer.frame


def _read(response: httpx.Response, _piece: Piece) -> tuple[pa.Table, Notes]:
    try:
        table = ipc.open_stream(response.content).read_all()
        notes = Notes.model_validate_json((table.schema.metadata or {})[_NOTES])
    except (pa.ArrowException, OSError, KeyError, ValidationError) as error:
        raise ServerError(
            f"{response.url}: not an answer of foretell: {str(error)[:200]}",
            status=response.status_code,
        ) from None
    return table, notes
