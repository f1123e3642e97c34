"""`POST /actuals`: what came true of series, for the ledger."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from importlib import import_module
from operator import methodcaller
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np
from starlette.requests import Request

from foretell.service.arrays import NO_ARRAYS, Arrays
from foretell.service.engine.engine import Engine
from foretell.service.engine.registry import Model
from foretell.service.errors import (
    DeadlineExceededError,
    InvalidInputError,
)
from foretell.service.forecast.actuals_inputs import Actual, Entries, read_actuals
from foretell.service.forecast.actuals_types import ACTUALS, ActualsEnvelope, TableReference
from foretell.service.forecast.encode import write_answer
from foretell.service.forecast.parse import (
    JsonBody,
    inputs_work,
    parse,
    waiting_memory,
)
from foretell.service.forecast.routes import ArrowBody
from foretell.service.forecast.warnings import AnswerWarning
from foretell.service.http.body import JSON
from foretell.service.http.compression import Body
from foretell.service.http.middleware import request_context
from foretell.service.http.pipeline import NotRemembered, Parsed, Wait
from foretell.service.settings import Settings
from foretell.service.validation import QUERY, UnknownFields

# The work of an output, as bytes of numbers.
_OUTPUT = 1024


class Actuals(NotRemembered):
    """A decoded request with actual values; it has no windows to forecast.

    Args:
        model: The model that gave the channels and the frequency.
        engine: The engine, whose ledger gets the values.
        namespace: Namespace of the request's key.
        entries: Every series, or its error.
        warnings: Warnings of the answer.
    """

    windows: ClassVar = 0
    timeout: ClassVar[float | None] = None
    coverage: ClassVar[Mapping[float, tuple[int, int]]] = MappingProxyType({})

    def __init__(
        self,
        model: Model,
        engine: Engine,
        namespace: str,
        entries: Entries,
        warnings: list[AnswerWarning],
    ) -> None:
        self.entries = entries
        self._model = model
        self._engine = engine
        self._namespace = namespace
        self._warnings = warnings
        self._written: list[dict[str, int]] = []
        good = self._good
        self.held = sum(each.times.nbytes + each.values.nbytes for each in good)

    @property
    def _good(self) -> list[Actual]:
        return [entry for entry in self.entries if isinstance(entry, Actual)]

    async def run(self, deadline: float, wait: Wait) -> Arrays:  # noqa: ARG002 - as of a model
        """Write the values.

        Raises:
            DeadlineExceededError: they may be written later.
            NotReadyError: the database does not answer.
            NotSupportedError: the server has no ledger.
        """
        good, step = self._good, str(self._model.manifest.step.canonical)
        series = [
            (self._namespace, each.name, step, each.channels, len(each.times)) for each in good
        ]
        arrays: Arrays = {
            "times": np.concatenate([each.times for each in good]),
            "values": np.concatenate([each.values.ravel() for each in good]),
        }
        try:
            async with asyncio.timeout(max(0.0, deadline - time.monotonic())):
                self._written, _ = await self._engine.ledger("observe", series, arrays=arrays)
        except TimeoutError:
            raise DeadlineExceededError(
                "the deadline passed before the values were written, which they may be later; "
                "sending them again changes nothing"
            ) from None
        return NO_ARRAYS

    def encode(self) -> bytes:
        """Write the answer: an output for every series."""
        written = iter(self._written)

        def content(_: int, entry: Actual) -> dict[str, Any]:
            return {"name": entry.name, **next(written)}

        fields = {"warnings": self._warnings} if self._warnings else {}
        return write_answer("actuals", self._model, self.entries, content, fields)[1]


class _Answers:
    """The half of both codecs that writes answers, in JSON."""

    def encoding_work(self, actuals: Actuals, outputs: Arrays) -> int:  # noqa: ARG002
        return _OUTPUT * len(actuals.entries)

    def encode(self, actuals: Actuals, outputs: Arrays) -> tuple[bytes, dict[str, str]]:  # noqa: ARG002
        return actuals.encode(), {"content-type": JSON}


class ActualsCodec(_Answers, JsonBody):
    """Actual values in JSON."""

    def __init__(self, engine: Engine, settings: Settings) -> None:
        self._engine = engine
        self._settings = settings

    def parse(
        self, body: Body, request: Request
    ) -> Parsed[tuple[ActualsEnvelope, UnknownFields, str]]:
        """Read the request except its inputs."""
        envelope, unknown = parse(body, ACTUALS, self._settings.max_inputs)
        if request.scope["query_string"]:
            ACTUALS.names.check(QUERY, request.query_params, QUERY, unknown)
        find = methodcaller("find", envelope.model)
        work = inputs_work(envelope.inputs, len(body))
        content = envelope, unknown, _namespace(request)
        return Parsed(content, find, work, waiting_memory(body, work))

    def decode(
        self, parsed: Parsed[tuple[ActualsEnvelope, UnknownFields, str]], model: Model
    ) -> Actuals:
        """Read the inputs."""
        envelope, unknown, namespace = parsed.release()
        most, count = self._settings.max_inputs, len(envelope.inputs)
        if count > most:
            raise InvalidInputError(f"expected at most {most} inputs, got {count}", param="inputs")
        read = read_actuals(envelope.inputs, model.manifest, unknown)
        return Actuals(model, self._engine, namespace, *read)


class ActualsTableCodec(_Answers, ArrowBody):
    """Actual values of a table in Arrow's format; the model is a parameter of the URL."""

    def __init__(self, engine: Engine, settings: Settings) -> None:
        self._engine = engine
        self._settings = settings

    def parse(self, body: Body, request: Request) -> Parsed[Any]:
        """Read all that does not need the model."""
        # The first table loads Arrow.
        arrow = import_module("foretell.service.forecast.arrow")
        parsed: Parsed[Any] = arrow.parse(
            body, request.query_params, self._settings, TableReference
        )
        (table, _), namespace = parsed.release(), _namespace(request)
        return Parsed((table, namespace), parsed.find, parsed.work, parsed.memory)

    def decode(self, parsed: Parsed[Any], model: Model) -> Actuals:
        """Read the series."""
        tables = import_module("foretell.service.forecast.actuals_table")
        table, namespace = parsed.release()
        read = tables.read_table(table, model.manifest, self._settings)
        return Actuals(model, self._engine, namespace, *read)


def _namespace(request: Request) -> str:
    return request_context(request.scope).namespace
