from __future__ import annotations

import asyncio
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretell.service.engine.frames import (
    Frame,
    Kind,
    Reader,
    Writer,
    frame,
    pack,
    pack_document,
    unpack,
    unpack_document,
)


def joined(*frames: list[bytes | memoryview]) -> bytes:
    return b"".join(piece for pieces in frames for piece in pieces)


def read(data: bytes, cuts: list[int]) -> list[tuple[int, int, bytes]]:
    """The frames of a stream that comes in pieces."""
    reader, found = Reader(), []
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    for begin, end in pairwise(edges):
        found += list(reader.feed(data[begin:end]))
    return [(each.kind, each.number, bytes(each.body)) for each in found]


@given(
    bodies=st.lists(st.binary(max_size=70), max_size=5),
    cuts=st.lists(st.integers(0, 500), max_size=8),
)
def test_frames_come_in_any_pieces(bodies: list[bytes], cuts: list[int]) -> None:
    data = joined(*(frame(Kind.RUN, number, body) for number, body in enumerate(bodies)))
    found = read(data, cuts)
    assert [(kind, number) for kind, number, _ in found] == [
        (Kind.RUN, number) for number in range(len(bodies))
    ]
    for (_, _, body), sent in zip(found, bodies, strict=True):
        assert body == sent + bytes(-len(sent) % 16)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "float16", "bool"])
@pytest.mark.parametrize("shape", [(1,), (3, 5, 2), (2, 0, 4), ()])
def test_arrays(dtype: str, shape: tuple[int, ...]) -> None:
    values = np.arange(int(np.prod(shape)), dtype=np.float64).astype(dtype).reshape(shape)
    sent = {"history": values, "encoder.0.self.weights": values[..., :1] if shape else values}
    (come,) = Reader().feed(joined(frame(Kind.RUN, 1, *pack(sent))))
    found = unpack(come.body)
    assert list(found) == list(sent)
    for name, array in sent.items():
        assert found[name].dtype == array.dtype
        assert found[name].flags.aligned
        np.testing.assert_array_equal(found[name], array)


def test_more_arrays_and_longer_names_than_a_byte_counts() -> None:
    sent = {f"{'stage' * 60}.{number}": np.full(1, number) for number in range(300)}
    (come,) = Reader().feed(joined(frame(Kind.OUTPUTS, 2**40, *pack(sent))))
    found = unpack(come.body)
    assert come.number == 2**40
    assert list(found) == list(sent)
    assert [int(each[0]) for each in found.values()] == list(range(300))


def test_arrays_are_read_where_they_lie() -> None:
    (come,) = Reader().feed(joined(frame(Kind.RUN, 1, *pack({"a": np.ones((2, 3), np.float32)}))))
    assert np.shares_memory(unpack(come.body)["a"], np.frombuffer(come.body, np.uint8))


def test_rows_of_a_batch_are_not_copied() -> None:
    batch = np.zeros((8, 4), np.float32)
    views = [piece for piece in pack({"a": batch[2:5]}) if isinstance(piece, memoryview)]
    assert np.shares_memory(np.asarray(views[0]), batch)


def test_documents() -> None:
    document = {"slots": [["m", "1", None, "näher"]], "ready": True}
    arrays = {"levels": np.arange(3.0)}
    (come,) = Reader().feed(joined(frame(Kind.ANSWER, 7, *pack_document(document, arrays))))
    assert come[:2] == (Kind.ANSWER, 7)
    found, with_it = unpack_document(come.body)
    assert found == document
    np.testing.assert_array_equal(with_it["levels"], arrays["levels"])


class Transport(asyncio.WriteTransport):
    def __init__(self) -> None:
        super().__init__()
        self.written: list[bytes] = []

    def write(self, data: bytes) -> None:  # type: ignore[override]
        self.written.append(data)


def test_the_frames_of_a_turn_are_written_together() -> None:
    transport = Transport()

    async def send() -> None:
        writer = Writer(transport, asyncio.get_running_loop())
        writer.send(frame(Kind.RUN, 1, b"one"))
        writer.send(frame(Kind.RUN, 2, b"two"))
        await asyncio.sleep(0)
        writer.send(frame(Kind.RUN, 3, b"three"))
        writer.flush()
        # Nothing is left for the turn that was asked for.
        await asyncio.sleep(0)

    asyncio.run(send())
    first, second = ([each.number for each in read_all(data)] for data in transport.written)
    assert (first, second) == ([1, 2], [3])


def read_all(data: bytes) -> list[Frame]:
    return list(Reader().feed(data))
