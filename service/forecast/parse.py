"""The codec of forecasts in JSON, and its first step, from bytes to an envelope."""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec
from operator import methodcaller
from typing import Any

import numpy as np
import orjson
from pydantic import ValidationError
from starlette.requests import Request

from foretell.service.engine.registry import Model
from foretell.service.forecast.encode import encode, encoding_work
from foretell.service.forecast.form import Form, RequestType
from foretell.service.forecast.futures import FUTURE, PAST
from foretell.service.forecast.job import Job, decode
from foretell.service.forecast.metadata import METADATA, echo, read_leniently
from foretell.service.forecast.options import FORECASTING, Operation
from foretell.service.forecast.pieces import read_pieces
from foretell.service.forecast.requests import BacktestEnvelope, BacktestOptions, Envelope
from foretell.service.forecast.scenarios import count_windows
from foretell.service.http.body import ALWAYS, JSON, LARGE
from foretell.service.http.compression import Body, unreadable
from foretell.service.http.pipeline import Parsed
from foretell.service.settings import Settings
from foretell.service.validation import QUERY, UnknownFields, refusal

# It has no wheels for the latest Python.
_simd = import_module("foretell.service.forecast.simd") if find_spec("simdjson") else None

# Smaller bodies with few brackets take less than 10 ms.
_WHOLE = 256 * 1024
# Bytes of memory by the character that marks a value, a list, an object, a key or a text: Python's
# objects, the parser, and an array of the numbers. Each was measured by itself.
_COSTS = {ord(","): 64, ord("["): 88, ord("{"): 64, ord(":"): 104, ord('"'): 24}
_EACH, _NOT_ASCII = 5, 8
_PIECE = 1024 * 1024
# The work of a list or an object.
_BRACKET = 4
_BEGINNING = 64 * 1024


def forget_parsers() -> None:
    """Free the memory that parsers keep for the next requests."""
    if _simd is not None:
        _simd.forget()


def parsing_bytes(body: Body | memoryview) -> int:
    """Estimated memory to parse JSON and make arrays of its numbers, besides the body."""
    marks = np.frombuffer(body, np.uint8)
    total = _EACH * len(marks)
    for start in range(0, len(marks), _PIECE):
        piece = marks[start : start + _PIECE]
        total += _NOT_ASCII * int(np.count_nonzero(piece >= 128))
        for mark, cost in _COSTS.items():
            total += cost * int(np.count_nonzero(piece == mark))
    return total


def reading_work(body: Body, size: int) -> int:
    """Work to parse the first `size` bytes of a body, in the unit of `body.LARGE`."""
    if size >= _WHOLE:
        return size
    return size + _BRACKET * (body.count(b"[", 0, size) + body.count(b"{", 0, size))


class Compressed:
    """Compression of a codec's answers."""

    encodings = ("zstd", "gzip")
    # Most clients accept gzip by default, and it takes longer than most forecasts: half a
    # millisecond for this size. zstd takes a third of that, or less.
    compress_from = 64 * 1024


class JsonBody(Compressed):
    """The half of a codec whose requests and answers are JSON."""

    media_type = JSON

    def parsing_work(self, body: Body, request: object) -> int:  # noqa: ARG002
        return reading_work(body, len(body))

    def parsing_memory(self, body: Body, request: object) -> int:  # noqa: ARG002
        return parsing_bytes(body)


# The objects of a request above its inputs, each with the name of the next one in it.
_LEVELS = (("", "options"), ("options", "attention"), ("options.attention", ""))


def parse(
    body: Body, kind: RequestType = FORECASTING, most: int = sys.maxsize
) -> tuple[Any, UnknownFields]:
    """Read a request without its model: the envelope, with unread inputs, and unknown fields.

    If there are more than `most` inputs, only their number is right.
    """
    if len(body) > _BEGINNING:
        _check_beginning(body)
    request = None if _simd is None else _simd.read(body)
    if request is None:
        request = read_json(body, kind.form, most)
    found = request
    names, ignored = kind.names, UnknownFields()
    for level, inner in _LEVELS:
        if not isinstance(found, dict) or level not in names.levels:
            break
        if not found.keys() <= names.levels[level].keys():
            names.check(level, found, level, ignored)
        found = found.get(inner)
    try:
        return kind.envelope.model_validate(request), ignored
    except ValidationError as error:
        raise refusal(error) from None


def read_json(body: Body | memoryview, form: Form | None = None, most: int = sys.maxsize) -> Any:  # noqa: ANN401 - any JSON
    """Read JSON and numbers outside it, such as NaN, which are refused later with their place.

    From large JSON only the fields of the form are read, with at most `most` objects in a list. If
    the form has metadata, they become bytes, as by `echo`.
    """
    if len(body) > _BEGINNING:
        _check_beginning(body)
    try:
        if form is not None and len(body) >= _WHOLE:
            return read_pieces(memoryview(body), form, most)
        try:
            value = orjson.loads(body)
        except orjson.JSONDecodeError:
            return read_leniently(bytes(body))
        if form is not None and METADATA in form.objects[""] and isinstance(value, dict):
            echo(value, body)
        return value
    except ValueError as error:
        raise unreadable(f"the body is not JSON: {error}", body) from None


def _check_beginning(body: Body | memoryview) -> None:
    """Refuse bodies of blanks or zeros, which a parser would copy and scan."""
    first = bytes(body[:_BEGINNING]).lstrip(b" \t\n\r")[:1]
    if not first or first not in b'{["-0123456789tfnNI':
        raise unreadable(f"the body is not JSON: it begins with {bytes(body[:20])!r}", body)


# The work of an input beside its numbers: its checks, and calendar features.
_INPUT = 8 * 1024
# The work of each of its times beside their bytes: the expected time is written and compared. And
# that of each value of a covariate, which is looked up.
_TIMESTAMP, _VALUE = 256, 32


class JsonCodec(JsonBody):
    """Forecasts in JSON."""

    encoding_work, encode = staticmethod(encoding_work), staticmethod(encode)

    def __init__(self, operation: Operation, settings: Settings) -> None:
        self._operation = operation
        self._settings = settings

    def parse(
        self, body: Body, request: Request
    ) -> Parsed[tuple[Envelope | BacktestEnvelope, UnknownFields]]:
        """Read the request except its inputs."""
        envelope, unknown = parse(body, self._operation, self._settings.max_inputs)
        if request.scope["query_string"]:
            self._operation.names.check(QUERY, request.query_params, QUERY, unknown)
        find = methodcaller("find", envelope.model)
        work = _decoding_work(envelope, len(body))
        return Parsed((envelope, unknown), find, work, waiting_memory(body, work))

    def decode(
        self, parsed: Parsed[tuple[Envelope | BacktestEnvelope, UnknownFields]], model: Model
    ) -> Job:
        """Read the inputs."""
        return decode(*parsed.release(), model, self._settings, self._operation)


def waiting_memory(body: Body, work: int) -> int:
    """Memory of a parsed request of some work that is not reserved yet."""
    # The parsed request is kept while it waits for a thread.
    is_kept = work >= LARGE and reading_work(body, len(body)) < LARGE
    return parsing_bytes(body) if is_kept else 0


def _decoding_work(envelope: Envelope | BacktestEnvelope, size: int) -> int:
    options = envelope.options
    # Backtest windows are cut out of all rows.
    if type(options) is BacktestOptions or options.calibration == "history":
        return ALWAYS
    return ALWAYS if options.importance else inputs_work(envelope.inputs, size)


def inputs_work(inputs: list[Any], size: int) -> int:
    """Work to read the unvalidated inputs of a request of `size` bytes."""
    work = size + _INPUT * count_windows(inputs)
    if work >= LARGE:
        return ALWAYS
    for entry in inputs:
        if not isinstance(entry, dict):
            continue
        # The first request to name a zone waits until its clock is known.
        if "time_zone" in entry:
            return ALWAYS
        if isinstance(timestamps := entry.get("timestamps"), list):
            work += _TIMESTAMP * len(timestamps)
        work += _VALUE * _count_values(entry)
        if isinstance(scenarios := entry.get("scenarios"), list):
            work += _VALUE * sum(_count_values(each) for each in scenarios)
    return work


def _count_values(entry: object) -> int:
    """The number of values of covariates in an input or a scenario, besides arrays of numbers."""
    if not isinstance(entry, dict):
        return 0
    found = [entry.get(place) for place in (PAST, FUTURE)]
    lists = [each for named in found if isinstance(named, dict) for each in named.values()]
    return sum(len(each) for each in lists if isinstance(each, list))
