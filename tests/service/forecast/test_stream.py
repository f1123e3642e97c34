from __future__ import annotations

import pyarrow as pa
import pytest
from pyarrow import ipc

from foretell.service.errors import TooLargeError, UnreadableError
from foretell.service.forecast.arrow import read_table, write_table

TABLE = pa.table(
    {
        "unique_id": pa.array(["a", "a", "b"]).dictionary_encode(),
        "load": pa.array([1.0, None, 3.0]),
    }
)


def stream(table: pa.Table, compression: str | None = None) -> bytes:
    sink = pa.BufferOutputStream()
    options = ipc.IpcWriteOptions(compression=compression)
    with ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def test_what_is_written_is_read() -> None:
    assert read_table(write_table(TABLE), 3).equals(TABLE)


def test_an_empty_stream() -> None:
    assert read_table(stream(TABLE.slice(0, 0)), 3).num_rows == 0


@pytest.mark.parametrize("compression", ["lz4", "zstd"])
def test_compressed_batches_are_refused_before_they_unfold(compression: str) -> None:
    with pytest.raises(UnreadableError, match="compressed record batches"):
        read_table(stream(TABLE, compression), 3)


def test_too_many_rows() -> None:
    with pytest.raises(TooLargeError, match="at most 2 rows, got 3"):
        read_table(stream(TABLE), 2)


@pytest.mark.parametrize("body", [b"", b"{}", b"ARROW1\0\0", stream(TABLE)[:-60], b"\xff" * 64])
def test_no_stream(body: bytes) -> None:
    with pytest.raises(UnreadableError, match="Arrow stream"):
        read_table(body, 3)
