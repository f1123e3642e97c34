"""Frames: what doors and the engine send each other over a Unix socket.

A frame is a head of 16 bytes (little-endian: 8 for the size of the body, 1 for the kind, 7 for the
number) and a body, padded to 16 bytes so that arrays may be read where they lie. The number ties an
answer to what it answers. Both ends are of the same installation and user: nothing else speaks it.
"""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import Any, NamedTuple, cast

import numpy as np

from foretell.service.arrays import Arrays

_HEAD = struct.Struct("<QQ")
# Bytes of its name, its type and how many axes it has.
_ARRAY = struct.Struct("<HcB")
_ALIGNMENT = 16
_READ = 256 * 1024
# What a connection holds that is not read yet; the system may allow less.
_HELD = 1024 * 1024
# Larger ones stay where they were written or read: it takes longer to copy them.
_COPIED = 16 * 1024
_PADDING = [bytes(size) for size in range(_ALIGNMENT)]


class Kind(IntEnum):
    """What a frame is: of doors from `RUN` on, of the engine from `MODEL` on."""

    RUN = 1
    CANCEL = 2
    CALL = 3
    COUNTS = 4
    SEEN = 5
    MODEL = 15
    DIRECTORY = 16
    OUTPUTS = 17
    ANSWER = 18
    ERROR = 19


class Frame(NamedTuple):
    """One frame.

    Attributes:
        kind: What it is.
        number: What it is about.
        body: Its body, with its padding.
    """

    kind: int
    number: int
    body: memoryview


def frame(kind: Kind, number: int, *pieces: bytes | memoryview) -> list[bytes | memoryview]:
    """A frame, as pieces to be written one after the other."""
    size = 0
    for piece in pieces:
        size += piece.nbytes if isinstance(piece, memoryview) else len(piece)
    padding = -size % _ALIGNMENT
    return [_HEAD.pack(size + padding, number << 8 | kind), *pieces, _PADDING[padding]]


def pack(arrays: Arrays) -> list[bytes | memoryview]:
    """Arrays by name, as pieces of a body; their sizes are multiples of 16 bytes."""
    pieces: list[bytes | memoryview] = [len(arrays).to_bytes(_ALIGNMENT, "little")]
    for name, array in arrays.items():
        told = name.encode()
        head = _ARRAY.pack(len(told), array.dtype.char.encode(), array.ndim)
        head += struct.pack(f"<{array.ndim}Q", *array.shape) + told
        # No copy: some windows of a batch are contiguous. As bytes: transports count them by `len`.
        data = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
        pieces += (head, _PADDING[-len(head) % _ALIGNMENT])
        pieces += (data, _PADDING[-data.nbytes % _ALIGNMENT])
    return pieces


def unpack(body: memoryview, at: int = 0) -> Arrays:
    """The arrays of a body, as views of it.

    Args:
        body: The body.
        at: Where `pack`'s pieces begin.
    """
    arrays: Arrays = {}
    count = int.from_bytes(body[at : at + _ALIGNMENT], "little")
    at += _ALIGNMENT
    for _ in range(count):
        named, code, dimensions = _ARRAY.unpack_from(body, at)
        shape = struct.unpack_from(f"<{dimensions}Q", body, at + _ARRAY.size)
        begin = at + _ARRAY.size + 8 * dimensions
        name = str(body[begin : begin + named], "utf-8")
        at = begin + named + -(begin + named) % _ALIGNMENT
        arrays[name] = values = np.ndarray(shape, code.decode(), body, at)
        at += values.nbytes + -values.nbytes % _ALIGNMENT
    return arrays


def pack_names(names: Sequence[str]) -> bytes:
    """Names without blanks, as a piece of a body; its size is a multiple of 16 bytes."""
    text = " ".join(names).encode()
    return text + b" " * (-len(text) % _ALIGNMENT)


def unpack_names(piece: memoryview) -> list[str]:
    """What `pack_names` has packed."""
    return str(piece, "utf-8").split()


def pack_document(document: object, arrays: Arrays) -> list[bytes | memoryview]:
    """What JSON can say, and arrays, as pieces of a body."""
    # Not by orjson, which refuses integers of more than 64 bits, as a manifest may have, and what
    # file systems name that is no UTF-8.
    text = json.dumps(document).encode()
    padding = _PADDING[-len(text) % _ALIGNMENT]
    return [len(text).to_bytes(_ALIGNMENT, "little"), text, padding, *pack(arrays)]


def unpack_document(body: memoryview) -> tuple[Any, Arrays]:
    """What `pack_document` has packed."""
    size = int.from_bytes(body[:_ALIGNMENT], "little")
    begin, end = _ALIGNMENT, _ALIGNMENT + size
    return json.loads(bytes(body[begin:end])), unpack(body, end + -end % _ALIGNMENT)


class Peer(asyncio.BufferedProtocol):
    """A connection over which frames come and go.

    Args:
        take: Called with this connection and each frame that comes, whose body it may keep.
    """

    def __init__(self, take: Callable[[Any, Frame], None]) -> None:
        self._take = take
        self._common = memoryview(bytearray(_READ))
        # Where bytes go now: the common buffer, or that of one large frame.
        self._buffer = self._common
        self._filled = 0
        self._pieces: list[bytes | memoryview] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to write."""
        self._transport = cast("asyncio.WriteTransport", transport)
        self._transport.get_extra_info("socket").setsockopt(
            socket.SOL_SOCKET, socket.SO_SNDBUF, _HELD
        )
        self._loop = asyncio.get_running_loop()

    def send(self, pieces: list[bytes | memoryview]) -> None:
        """Send a frame, with all others of this turn of the event loop, before its next one.

        Its arrays are not to be changed any more.
        """
        if not self._pieces:
            self._loop.call_soon(self.flush)
        self._pieces += pieces

    def flush(self) -> None:
        """Send what waits."""
        if self._pieces:
            pieces, self._pieces = self._pieces, []
            for piece in pieces:
                if type(piece) is memoryview and piece.nbytes > _COPIED:
                    self._transport.writelines(pieces)
                    return
            self._transport.write(b"".join(pieces))

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002
        """Where what comes next is to be written."""
        return self._buffer[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        """Hand on what is complete."""
        buffer, filled, at = self._buffer, self._filled + nbytes, 0
        frames: list[Frame] = []
        while at + _HEAD.size <= filled:
            size, named = _HEAD.unpack_from(buffer, at)
            begin, end = at + _HEAD.size, at + _HEAD.size + size
            if end > filled:
                if buffer is self._common and size > _COPIED:
                    # The rest of it is read to where it stays.
                    self._buffer = np.empty(end - at, np.uint8).data
                break
            body = buffer[begin:end]
            if buffer is self._common:
                body = memoryview(bytes(body))
            else:
                self._buffer = self._common
            frames.append(Frame(named & 0xFF, named >> 8, body))
            at = end
        self._filled = filled - at
        if self._buffer is not buffer or at:
            self._buffer[: self._filled] = buffer[at:filled]
        for come in frames:
            self._take(self, come)

    def close(self) -> None:
        """Send what waits, and close."""
        self.flush()
        self._transport.close()
