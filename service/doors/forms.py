"""The forms a request to the main door may have: JSON, or a table in Arrow's streaming format."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Protocol

from foretell.service.arrays import Arrays
from foretell.service.directory import Model
from foretell.service.errors import UnsupportedMediaError
from foretell.service.requests.decode import Job, decode
from foretell.service.requests.encode import encode, encoding_work
from foretell.service.requests.parsing import parse, parsing_bytes
from foretell.service.requests.schemas import Envelope
from foretell.service.settings import Settings
from foretell.service.web.offload import ALWAYS

JSON = "application/json"
ARROW = "application/vnd.apache.arrow.stream"

# What an input takes beside its numbers, as `Offload` has it: its checks, and calendar features.
_INPUT = 8 * 1024


class Answering(Protocol):
    """A request that was read whole, and knows how to write its answer."""

    @property
    def job(self) -> Job:
        """What to do."""

    def encoding_work(self, outputs: Arrays) -> int:
        """How much there is to do to write the answer, as `Offload` has it."""

    def encode(self, outputs: Arrays) -> bytes:
        """Write the answer; raises a `ServiceError` if nothing could be forecast."""


class Parsed(Protocol):
    """A request, read as far as it can be without knowing its model."""

    @property
    def model(self) -> str | None:
        """The model it names."""

    @property
    def work(self) -> int:
        """How much there is to do to read the rest, as `Offload` has it."""

    @property
    def memory(self) -> int:
        """About how many bytes the rest will take that are not counted yet."""

    def decode(self, model: Model, settings: Settings) -> Answering:
        """Read the rest; raises a `ServiceError` that says where it does not fit."""


def reading_bytes(media_type: str, body: bytes) -> int:
    """About how many bytes it takes to read a request; of a table it says so itself, once read."""
    return parsing_bytes(body) if media_type == JSON else 0


def read(media_type: str, body: bytes, query: Mapping[str, str], settings: Settings) -> Parsed:
    """Begin to read a request.

    Args:
        media_type: `JSON` or `ARROW`.
        body: Its body.
        query: The parameters of its URL, where a table has its options.
        settings: Limits.

    Raises:
        UnreadableError: the body is not what the media type says.
        UnsupportedMediaError: tables are not read, for want of a library.
        InvalidInputError: the request does not fit the interface.
    """
    if media_type == JSON:
        return _JsonParsed(parse(body), len(body))
    try:
        # Arrow takes its time and memory to load; many servers never see a table.
        request = import_module("foretell.service.arrow.request")
    except ModuleNotFoundError as error:
        raise UnsupportedMediaError(
            f"this server reads no {ARROW}: it lacks {error.name} (foretell's extra arrow)",
            param="Content-Type",
            accepted=[JSON],
        ) from None
    parsed: Parsed = request.TableRequest(body, query, settings)
    return parsed


class _JsonParsed:
    memory = 0

    def __init__(self, envelope: Envelope, size: int) -> None:
        self._envelope = envelope
        self._size = size

    @property
    def model(self) -> str | None:
        return self._envelope.model

    @property
    def work(self) -> int:
        inputs = self._envelope.inputs
        # The first to name a zone waits until its clock is known.
        if any(isinstance(entry, dict) and "time_zone" in entry for entry in inputs):
            return ALWAYS
        return self._size + _INPUT * len(inputs)

    def decode(self, model: Model, settings: Settings) -> Answering:
        return _JsonAnswering(decode(self._envelope, model, settings))


class _JsonAnswering:
    def __init__(self, job: Job) -> None:
        self.job = job

    def encoding_work(self, outputs: Arrays) -> int:
        return encoding_work(self.job, outputs)

    def encode(self, outputs: Arrays) -> bytes:
        return encode(self.job, outputs)
