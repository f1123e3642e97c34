"""The wire between the engine and the HTTP workers: messages and arrays over a Unix socket.

A frame is 16 bytes (two little-endian integers: the size of the rest, and the size of the head),
the head and the arrays. The head is a message with the name, type and shape of each array, in
msgpack. The head and each array are padded to 16 bytes, so that arrays are read in place. Both ends
belong to one server: nothing else speaks this protocol.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Mapping
from typing import Any, cast

import msgspec
import numpy as np

from foretell.service.arrays import NO_ARRAYS, Arrays
from foretell.service.counts import Taken
from foretell.service.engine.registry import State


class Message(msgspec.Struct, array_like=True, gc=False):
    """Content of a frame besides its arrays; `number` ties an answer to its request."""


class Submit(Message, tag=1):
    """Run a model, by the number of its load, on the windows of the arrays."""

    number: int
    model: int
    deadline: float
    admitted: bool
    background: bool
    attention: tuple[str, ...]


class Cancel(Message, tag=2):
    """Give up a run."""

    number: int


class Call(Message, tag=3):
    """Call a method of the engine, with the arrays, if any."""

    number: int
    method: str
    arguments: tuple[Any, ...]


class Counts(Message, tag=4):
    """Counts of a worker since its last message, and the number of requests in flight."""

    taken: Taken
    in_flight: int


class Result(Message, tag=5):
    """A run has ended; its outputs are the arrays."""

    number: int
    # When it was submitted, began and ended.
    times: tuple[float, float, float]
    loading: float
    batch: int


class Answer(Message, tag=6):
    """Return value of a call."""

    number: int
    value: Any


class Failed(Message, tag=7):
    """A run or a call has failed, with the error from `errors.to_wire`."""

    number: int
    error: dict[str, Any]


class Update(Message, tag=8):
    """The served versions of these models have changed.

    The array `changes` is a frame with `Changes` and the loads that the worker lacks, each a frame
    with a `Load`. So all of them can be read on a thread.
    """

    names: set[str]


class Changes(Message, tag=9):
    """How a `Registry` differs from the one that was sent before, or from an empty one.

    An entry of `changed` is a name, a version, the number of its load, the model's failure, and the
    fields of its `VersionState`.
    """

    changed: list[tuple[str, str, int | None, str | None, str, State | None, bool]]
    removed: list[tuple[str, str]]
    pins: dict[str, str]
    challengers: dict[str, tuple[str, float]]
    not_ready: str


class Load(Message, tag=10):
    """A loaded model; the arrays are its `Calibration`, if it has one."""

    manifest: bytes
    digest: str
    provider: str
    max_batch: int
    on_demand: bool


class Remember(Message, tag=11):
    """Keep forecasts of an answer in the ledger; the arrays are those of `forecast.record.record`.

    `digest` is the manifest's, `names` are those of the series, and `indexes` their places in the
    request.
    """

    model: str
    version: str
    digest: str
    namespace: str
    answer: str
    calibration: str
    levels: tuple[float, ...]
    names: list[str]
    indexes: list[int]


class Keeping(Message, tag=12):
    """Whether the ledger takes forecasts now; None without a ledger."""

    keeps: bool | None


class Learned(Message, tag=13):
    """Learned offsets, by the fields of their key; the arrays are those of their `Calibration`."""

    key: tuple[str, str, str, str | None]
    origins: int
    stored: str


class Forgotten(Message, tag=14):
    """Learned offsets that are no more, by the fields of their key."""

    key: tuple[str, str, str, str | None]


_Layout = list[tuple[str, str, tuple[int, ...]]]
_Any = (
    Submit
    | Cancel
    | Call
    | Counts
    | Result
    | Answer
    | Failed
    | Update
    | Changes
    | Load
    | Remember
    | Keeping
    | Learned
    | Forgotten
)
_Pieces = list[bytes | memoryview]

_PREFIX = struct.Struct("<QQ")
_ALIGNMENT = 16
_PADDING = [bytes(size) for size in range(_ALIGNMENT)]
_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(tuple[_Any, _Layout])
_READ_BYTES = 256 * 1024
# Size of the send buffer of a socket; the system may allow less.
_SOCKET_BYTES = 1024 * 1024
# Larger frames and arrays are not copied: a copy takes longer.
_COPIED_BYTES = 16 * 1024


def encode(message: Message, arrays: Arrays = NO_ARRAYS) -> _Pieces:
    """A frame, in pieces that are sent one after the other; arrays are not copied."""
    layout: _Layout = []
    data: _Pieces = []
    size = 0
    for name, array in arrays.items():
        layout.append((name, array.dtype.str, array.shape))
        # A view of bytes: transports count with `len`.
        values = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
        padding = -values.nbytes % _ALIGNMENT
        data += (values, _PADDING[padding])
        size += values.nbytes + padding
    try:
        head = _ENCODER.encode((message, layout))
    except UnicodeEncodeError:
        # The name of a file may not be UTF-8.
        head = _ENCODER.encode(
            (_escaped(msgspec.to_builtins(message, builtin_types=[bytes])), layout)
        )
    padding = -len(head) % _ALIGNMENT
    return [_PREFIX.pack(len(head) + padding + size, len(head)), head, _PADDING[padding], *data]


def decode(frame: memoryview) -> tuple[_Any, Arrays]:
    """The message and the arrays, which are views, of a frame; msgspec.DecodeError if malformed."""
    at = _PREFIX.size + _PREFIX.unpack_from(frame)[1]
    message, layout = _DECODER.decode(frame[_PREFIX.size : at])
    arrays: Arrays = {}
    for name, dtype, shape in layout:
        at += -at % _ALIGNMENT
        arrays[name] = values = np.ndarray(shape, dtype, frame, at)
        at += values.nbytes
    return message, arrays


def _escaped(value: Any) -> Any:  # noqa: ANN401
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, Mapping):
        return {_escaped(name): _escaped(each) for name, each in value.items()}
    return [_escaped(each) for each in value] if isinstance(value, (list, tuple)) else value


class Connection(asyncio.BufferedProtocol):
    """One end of a connection; subclasses handle the messages."""

    def __init__(self) -> None:
        self._common = memoryview(bytearray(_READ_BYTES))
        # Where bytes go now: the common buffer, or that of one large frame.
        self._buffer = self._common
        self._filled = 0
        self._unsent: _Pieces = []

    def received(self, message: _Any, arrays: Arrays) -> None:
        """Handle a message; its arrays may be kept."""
        raise NotImplementedError

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.WriteTransport", transport)
        self.transport.get_extra_info("socket").setsockopt(
            socket.SOL_SOCKET, socket.SO_SNDBUF, _SOCKET_BYTES
        )
        self._loop = asyncio.get_running_loop()

    def send(self, message: Message, arrays: Arrays = NO_ARRAYS) -> None:
        """Send a message at the end of this turn of the event loop, with its other messages.

        The arrays must not change any more.
        """
        self.write(encode(message, arrays))

    def write(self, pieces: _Pieces) -> None:
        """Send an encoded frame."""
        if not self._unsent:
            self._loop.call_soon(self.flush)
        self._unsent += pieces

    def flush(self) -> None:
        """Send the waiting frames at once."""
        pieces, self._unsent = self._unsent, []
        if any(type(each) is memoryview and each.nbytes > _COPIED_BYTES for each in pieces):
            self.transport.writelines(pieces)
        elif pieces:
            self.transport.write(b"".join(pieces))

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002
        return self._buffer[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        """Handle the complete frames."""
        buffer, filled, at = self._buffer, self._filled + nbytes, 0
        frames: list[memoryview] = []
        while at + _PREFIX.size <= filled:
            end = at + _PREFIX.size + _PREFIX.unpack_from(buffer, at)[0]
            if end > filled:
                if buffer is self._common and end - at > _COPIED_BYTES:
                    # The rest of the frame is read into its final buffer.
                    self._buffer = np.empty(end - at, np.uint8).data
                break
            frame = buffer[at:end]
            if buffer is self._common:
                frame = memoryview(bytes(frame))
            else:
                self._buffer = self._common
            frames.append(frame)
            at = end
        self._filled = filled - at
        if self._buffer is not buffer or at:
            self._buffer[: self._filled] = buffer[at:filled]
        for frame in frames:
            self.received(*decode(frame))

    def close(self) -> None:
        self.flush()
        self.transport.close()
