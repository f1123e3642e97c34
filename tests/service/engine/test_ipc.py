from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterable
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretell.service.engine import ipc
from foretell.service.engine.ipc import (
    Frame,
    Kind,
    Peer,
    frame,
    pack,
    pack_document,
    unpack,
    unpack_document,
)


def joined(*frames: list[bytes | memoryview]) -> bytes:
    return b"".join(piece for pieces in frames for piece in pieces)


def read(*pieces: bytes) -> list[Frame]:
    """The frames of a stream that comes in pieces."""
    found: list[Frame] = []
    peer = Peer(lambda _, come: found.append(come))
    for piece in pieces:
        rest = piece
        while rest:
            room = peer.get_buffer(-1)
            count = min(len(room), len(rest))
            room[:count] = rest[:count]
            peer.buffer_updated(count)
            rest = rest[count:]
    return found


@given(
    bodies=st.lists(st.binary(max_size=90), max_size=6),
    cuts=st.lists(st.integers(0, 500), max_size=8),
)
def test_frames_come_in_any_pieces(bodies: list[bytes], cuts: list[int]) -> None:
    data = joined(*(frame(Kind.RUN, number, body) for number, body in enumerate(bodies)))
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    with pytest.MonkeyPatch.context() as small:
        # Some are larger than what is read at once, and get a buffer of their own.
        small.setattr(ipc, "_COPIED", 48)
        small.setattr(ipc, "_READ", 80)
        found = read(*(data[begin:end] for begin, end in pairwise(edges)))
    assert [(come.kind, come.number) for come in found] == [
        (Kind.RUN, number) for number in range(len(bodies))
    ]
    # None was written over by what came later.
    for come, sent in zip(found, bodies, strict=True):
        assert bytes(come.body) == sent + bytes(-len(sent) % 16)


def test_a_large_frame_is_read_to_where_it_stays() -> None:
    body = np.arange(100_000, dtype=np.float64)
    data = joined(frame(Kind.RUN, 1, b"first"), frame(Kind.OUTPUTS, 2, *pack({"a": body})))
    found: list[Frame] = []
    peer = Peer(lambda _, come: found.append(come))
    peer.get_buffer(-1)[:100] = data[:100]
    peer.buffer_updated(100)
    room = peer.get_buffer(-1)
    assert len(room) == len(data) - 100
    room[:] = data[100:]
    peer.buffer_updated(len(room))
    assert [come.number for come in found] == [1, 2]
    values = unpack(found[1].body)["a"]
    assert values.flags.aligned
    assert np.shares_memory(values, np.asarray(room))
    np.testing.assert_array_equal(values, body)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "float16", "bool"])
@pytest.mark.parametrize("shape", [(1,), (3, 5, 2), (2, 0, 4), ()])
def test_arrays(dtype: str, shape: tuple[int, ...]) -> None:
    values = np.arange(int(np.prod(shape)), dtype=np.float64).astype(dtype).reshape(shape)
    sent = {"history": values, "encoder.0.self.weights": values[..., :1] if shape else values}
    (come,) = read(joined(frame(Kind.RUN, 1, *pack(sent))))
    found = unpack(come.body)
    assert list(found) == list(sent)
    for name, array in sent.items():
        assert found[name].dtype == array.dtype
        assert found[name].flags.aligned
        np.testing.assert_array_equal(found[name], array)


def test_more_arrays_and_longer_names_than_a_byte_counts() -> None:
    sent = {f"{'stage' * 60}.{number}": np.full(1, number) for number in range(300)}
    (come,) = read(joined(frame(Kind.OUTPUTS, 2**40, *pack(sent))))
    found = unpack(come.body)
    assert come.number == 2**40
    assert list(found) == list(sent)
    assert [int(each[0]) for each in found.values()] == list(range(300))


def test_arrays_are_read_where_they_lie() -> None:
    (come,) = read(joined(frame(Kind.RUN, 1, *pack({"a": np.ones((2, 3), np.float32)}))))
    assert np.shares_memory(unpack(come.body)["a"], np.frombuffer(come.body, np.uint8))


def test_rows_of_a_batch_are_not_copied() -> None:
    batch = np.zeros((8, 4), np.float32)
    views = [piece for piece in pack({"a": batch[2:5]}) if isinstance(piece, memoryview)]
    assert np.shares_memory(np.asarray(views[0]), batch)


def test_documents() -> None:
    document = {"slots": [["m", "1", None, "näher", "\udcff"]], "ready": True, "seed": 2**70}
    arrays = {"levels": np.arange(3.0)}
    (come,) = read(joined(frame(Kind.ANSWER, 7, *pack_document(document, arrays))))
    assert come[:2] == (Kind.ANSWER, 7)
    found, with_it = unpack_document(come.body)
    assert found == document
    np.testing.assert_array_equal(with_it["levels"], arrays["levels"])


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


def test_the_frames_of_a_turn_are_written_together() -> None:
    transport = Transport()

    async def send() -> None:
        peer = Peer(lambda *_: None)
        peer.connection_made(transport)
        peer.send(frame(Kind.RUN, 1, b"one"))
        peer.send(frame(Kind.RUN, 2, b"two"))
        await asyncio.sleep(0)
        peer.send(frame(Kind.RUN, 3, b"three"))
        peer.flush()
        # Nothing is left for the turn that was asked for.
        await asyncio.sleep(0)

    asyncio.run(send())
    transport.socket.close()
    first, second = ([each.number for each in read(data)] for data in transport.written)
    assert (first, second) == ([1, 2], [3])
    assert not transport.pieces


def test_a_connection_holds_more_than_others() -> None:
    async def connect() -> tuple[int, ...]:
        transport = Transport()
        option = socket.SOL_SOCKET, socket.SO_SNDBUF
        before = transport.socket.getsockopt(*option)
        Peer(lambda *_: None).connection_made(transport)
        after = transport.socket.getsockopt(*option)
        transport.socket.close()
        return before, after

    before, after = asyncio.run(connect())
    assert after > before


def test_large_arrays_are_written_from_where_they_lie() -> None:
    transport = Transport()
    array = np.ones((3, 20_000), np.float32)

    async def send() -> None:
        peer = Peer(lambda *_: None)
        peer.connection_made(transport)
        peer.send(frame(Kind.RUN, 1, *pack({"a": array})))
        peer.flush()

    asyncio.run(send())
    transport.socket.close()
    assert any(
        isinstance(piece, memoryview) and np.shares_memory(np.asarray(piece), array)
        for piece in transport.pieces
    )
    (come,) = read(transport.written[0])
    np.testing.assert_array_equal(unpack(come.body)["a"], array)
