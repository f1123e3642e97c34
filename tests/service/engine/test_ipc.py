from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretell.service.arrays import Arrays
from foretell.service.engine import ipc
from foretell.service.engine.ipc import Answer, Cancel, Message, Result, Update, encode
from tests.service.loops import on_loop

Received = list[tuple[Message, Arrays]]


def result(number: int) -> Result:
    return Result(number, (0.25, 0.5, 1.0), 0.0, 3)


def joined(*frames: list[bytes | memoryview]) -> bytes:
    return b"".join(piece for pieces in frames for piece in pieces)


class Receiver(ipc.Connection):
    def __init__(self) -> None:
        super().__init__()
        self.came: Received = []

    def received(self, message: Any, arrays: Arrays) -> None:
        self.came.append((message, arrays))


def read(*pieces: bytes) -> Received:
    """The messages of a stream that comes in pieces."""
    receiver = Receiver()
    for piece in pieces:
        rest = piece
        while rest:
            room = receiver.get_buffer(-1)
            count = min(len(room), len(rest))
            room[:count] = rest[:count]
            receiver.buffer_updated(count)
            rest = rest[count:]
    return receiver.came


@given(
    bodies=st.lists(st.binary(max_size=90), max_size=6),
    cuts=st.lists(st.integers(0, 900), max_size=8),
)
def test_frames_are_read_from_any_pieces(bodies: list[bytes], cuts: list[int]) -> None:
    sent = [np.frombuffer(body, np.uint8) for body in bodies]
    data = joined(*(encode(Answer(number, "ok"), {"a": each}) for number, each in enumerate(sent)))
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    with pytest.MonkeyPatch.context() as small:
        # Some are larger than what is read at once, and get a buffer of their own.
        small.setattr(ipc, "_COPIED_BYTES", 96)
        small.setattr(ipc, "_READ_BYTES", 144)
        messages = read(*(data[begin:end] for begin, end in pairwise(edges)))
    assert [message for message, _ in messages] == [
        Answer(number, "ok") for number in range(len(sent))
    ]
    # Later messages have not overwritten the arrays.
    for (_, arrays), body in zip(messages, bodies, strict=True):
        assert arrays["a"].tobytes() == body


def test_large_frame_is_read_into_its_final_buffer() -> None:
    body = np.arange(100_000, dtype=np.float64)
    data = joined(encode(Cancel(1)), encode(result(2), {"a": body}))
    receiver = Receiver()
    receiver.get_buffer(-1)[:100] = data[:100]
    receiver.buffer_updated(100)
    room = receiver.get_buffer(-1)
    assert len(room) == len(data) - 100
    room[:] = data[100:]
    receiver.buffer_updated(len(room))
    assert [message for message, _ in receiver.came] == [Cancel(1), result(2)]
    values = receiver.came[1][1]["a"]
    assert values.flags.aligned
    assert np.shares_memory(values, np.asarray(room))
    np.testing.assert_array_equal(values, body)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "float16", "bool", "<U20"])
@pytest.mark.parametrize("shape", [(1,), (3, 5, 2), (2, 0, 4), ()])
def test_arrays(dtype: str, shape: tuple[int, ...]) -> None:
    values = np.arange(int(np.prod(shape)), dtype=np.float64).astype(dtype).reshape(shape)
    sent = {"history": values, "encoder.0.self.weights": values[..., :1] if shape else values}
    [(_, arrays)] = read(joined(encode(result(1), sent)))
    assert list(arrays) == list(sent)
    for name, array in sent.items():
        assert arrays[name].dtype == array.dtype
        assert arrays[name].ctypes.data % 16 == 0
        np.testing.assert_array_equal(arrays[name], array)


def test_more_than_255_arrays_and_characters_of_a_name() -> None:
    sent = {f"{'stage' * 60}.{number}": np.full(1, number) for number in range(300)}
    [(message, arrays)] = read(joined(encode(result(2**40), sent)))
    assert message == result(2**40)
    assert list(arrays) == list(sent)
    assert [int(each[0]) for each in arrays.values()] == list(range(300))


@pytest.mark.parametrize(
    ("value", "read_as"),
    [
        ([["m", "1", None, "näher", True], {"seconds": 0.5}, b"text", 2**63], None),
        # Names of files that are no UTF-8.
        ({"\udcff": ["a \udcff", b"\xff", 1]}, {"\\udcff": ["a \\udcff", b"\xff", 1]}),
    ],
)
def test_values(value: object, read_as: object) -> None:
    [(message, arrays)] = read(joined(encode(Answer(7, value), {"a": np.ones(2)})))
    assert message == Answer(7, read_as or value)
    np.testing.assert_array_equal(arrays["a"], np.ones(2))


class Transport(asyncio.WriteTransport):
    def __init__(self) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        super().__init__({"socket": self.socket})
        self.written: list[bytes] = []
        self.pieces: list[object] = []

    def write(self, data: bytes) -> None:  # type: ignore[override]
        self.written.append(data)

    def writelines(self, list_of_data: Iterable[bytes | memoryview]) -> None:  # type: ignore[override]
        self.pieces = [*list_of_data]
        self.write(b"".join(self.pieces))  # type: ignore[arg-type]


@on_loop
async def test_frames_of_one_turn_of_the_loop_are_written_together() -> None:
    transport = Transport()
    connection = Receiver()
    connection.connection_made(transport)
    connection.send(Cancel(1))
    connection.send(Cancel(2))
    await asyncio.sleep(0)
    connection.send(Cancel(3))
    connection.flush()
    # The scheduled flush has nothing to send.
    await asyncio.sleep(0)
    transport.socket.close()
    first, second = ([message for message, _ in read(data)] for data in transport.written)
    assert (first, second) == ([Cancel(1), Cancel(2)], [Cancel(3)])
    assert not transport.pieces


def test_connection_has_a_larger_socket_buffer() -> None:
    async def connect() -> tuple[int, ...]:
        transport = Transport()
        option = socket.SOL_SOCKET, socket.SO_SNDBUF
        before = transport.socket.getsockopt(*option)
        Receiver().connection_made(transport)
        after = transport.socket.getsockopt(*option)
        transport.socket.close()
        return before, after

    before, after = asyncio.run(connect())
    assert after > before


@on_loop
async def test_large_arrays_are_written_without_a_copy() -> None:
    transport = Transport()
    array = np.ones((3, 20_000), np.float32)
    connection = Receiver()
    connection.connection_made(transport)
    connection.send(Update(set()), {"a": array})
    connection.flush()
    transport.socket.close()
    assert any(
        isinstance(piece, memoryview) and np.shares_memory(np.asarray(piece), array)
        for piece in transport.pieces
    )
    [(_, arrays)] = read(transport.written[0])
    np.testing.assert_array_equal(arrays["a"], array)
