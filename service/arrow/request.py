"""A request whose body is a table; what the main door needs of it."""

from __future__ import annotations

import sys
from collections.abc import Mapping

from foretell.service.arrays import Arrays
from foretell.service.arrow.columns import TIME
from foretell.service.arrow.decode import Request, decode
from foretell.service.arrow.encode import encode
from foretell.service.arrow.stream import read_table
from foretell.service.directory import Model
from foretell.service.errors import InvalidInputError
from foretell.service.requests.decode import Job
from foretell.service.requests.encode import encoding_work
from foretell.service.requests.schemas import ForecastOptions, TableOptions
from foretell.service.settings import Settings
from foretell.service.validation import validate

# Of a value; a table of `max_body_bytes` cannot have more rows than this lets through.
_SMALLEST = 2
# Bytes at most, of each row: its place among the series, each of its values, and its time.
_ROW, _COLUMN, _TIME = 12, 12, 64


class TableRequest:
    """A table and the options in the URL, before its model is known.

    Args:
        body: The stream.
        query: The URL's parameters.
        settings: Limits.

    Raises:
        UnreadableError: the body is no Arrow stream.
        InvalidInputError: a parameter is unknown or wrong.
    """

    def __init__(self, body: bytes, query: Mapping[str, str], settings: Settings) -> None:
        for name in query:
            if name not in TableOptions.model_fields:
                raise InvalidInputError(
                    f"expected one of {', '.join(TableOptions.model_fields)}, got {name[:60]!r}",
                    param="query",
                )
        self._options = validate(TableOptions, dict(query), "query")
        self._table = read_table(body, settings.max_body_bytes // _SMALLEST)

    @property
    def model(self) -> str | None:
        """The model it names."""
        return self._options.model

    @property
    def work(self) -> int:
        """How much there is to do to read the table, as `Offload` has it: nobody knows yet."""
        return sys.maxsize

    @property
    def memory(self) -> int:
        """About how many bytes the arrays will take that are made of its columns."""
        row = _ROW + _COLUMN * len(self._table.column_names)
        if TIME in self._table.column_names:
            row += _TIME
        return row * int(self._table.num_rows)

    def decode(self, model: Model, settings: Settings) -> TableAnswering:
        """Read the table.

        Raises:
            InvalidInputError: it does not fit the model; `NotSupportedError` likewise.
        """
        given = self._options
        options = validate(
            ForecastOptions,
            {"horizon": given.horizon, "quantiles": given.quantiles, "missing": given.missing},
            "query",
        )
        return TableAnswering(decode(self._table, options, model, settings))


class TableAnswering:
    """A table that was read.

    Args:
        request: What was read.
    """

    def __init__(self, request: Request) -> None:
        self._request = request

    @property
    def job(self) -> Job:
        """What to do."""
        return self._request.job

    def encoding_work(self, outputs: Arrays) -> int:
        """How much there is to do to write the answer, as `Offload` has it."""
        return encoding_work(self.job, outputs)

    def encode(self, outputs: Arrays) -> bytes:
        """Write the answer.

        Raises:
            ServiceError: no series has a forecast; it is the first one's error.
        """
        return encode(self._request, outputs)
