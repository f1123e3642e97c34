"""The forms a request to the main door may have: JSON, or a table in Arrow's streaming format."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Protocol

from foretell.service.arrays import Arrays
from foretell.service.errors import UnreadableError
from foretell.service.model import Model
from foretell.service.requests.decode import Job, decode
from foretell.service.requests.encode import answer_bytes, encode
from foretell.service.requests.parsing import named_model, parse
from foretell.service.requests.schemas import Envelope
from foretell.service.settings import Settings

JSON = "application/json"
ARROW = "application/vnd.apache.arrow.stream"


class Answering(Protocol):
    """A request that was read whole, and knows how to write its answer."""

    @property
    def job(self) -> Job:
        """What to do."""

    def answer_bytes(self, outputs: Arrays) -> int:
        """At least how many bytes of numbers the answer will hold."""

    def encode(self, outputs: Arrays) -> bytes:
        """Write the answer; raises a `ServiceError` if nothing could be forecast."""


class Parsed(Protocol):
    """A request, read as far as it can be without knowing its model."""

    @property
    def model(self) -> str | None:
        """The model it names."""

    def decode(self, model: Model, settings: Settings) -> Answering:
        """Read the rest; raises a `ServiceError` that says where it does not fit."""


def read(
    media_type: str, body: bytes | bytearray, query: Mapping[str, str], settings: Settings
) -> Parsed:
    """Begin to read a request.

    Args:
        media_type: `JSON` or `ARROW`.
        body: Its body.
        query: The parameters of its URL, where a table has its options.
        settings: Limits.

    Raises:
        UnreadableError: the body is not what the media type says.
        InvalidInputError: the request does not fit the interface.
    """
    if media_type == JSON:
        return _JsonParsed(parse(body))
    try:
        # Arrow takes its time and memory to load; many servers never see a table.
        request = import_module("foretell.service.arrow.request")
    except ModuleNotFoundError as error:
        raise UnreadableError(
            f"this server reads no {ARROW}: it lacks {error.name} (foretell's extra arrow)",
            param="Content-Type",
        ) from None
    parsed: Parsed = request.TableRequest(body, query, settings)
    return parsed


def presumed_model(
    media_type: str, body: bytes | bytearray, query: Mapping[str, str]
) -> str | None:
    """The model that a request seems to name, before it is read; None if it seems to name none."""
    return named_model(body) if media_type == JSON else query.get("model")


class _JsonParsed:
    def __init__(self, envelope: Envelope) -> None:
        self._envelope = envelope

    @property
    def model(self) -> str | None:
        return self._envelope.model

    def decode(self, model: Model, settings: Settings) -> Answering:
        return _JsonAnswering(decode(self._envelope, model, settings))


class _JsonAnswering:
    def __init__(self, job: Job) -> None:
        self.job = job

    def answer_bytes(self, outputs: Arrays) -> int:
        return answer_bytes(self.job, outputs)

    def encode(self, outputs: Arrays) -> bytes:
        return encode(self.job, outputs)
