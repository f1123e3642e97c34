"""Arrow streams: from bytes that may be hostile to a table, and back.

https://arrow.apache.org/docs/format/Columnar.html#ipc-streaming-format
"""

from __future__ import annotations

import pyarrow as pa
from flatbuffers import encode, packer
from flatbuffers.table import Table as FlatTable
from pyarrow import ipc

from foretell.service.errors import ServiceError, TooLargeError, UnreadableError
from foretell.service.http.compression import Body, unreadable

# Positions of fields in the flatbuffers of Message.fbs.
_HEADER = 8
_DICTIONARY_DATA = 6
_COMPRESSION = 10


def read_table(body: Body, max_rows: int) -> pa.Table:
    """Read a stream, which may be hostile.

    Raises:
        UnreadableError: the bytes are no stream, or one that is not safe to read.
        TooLargeError: it has more rows than `max_rows`.
    """
    buffer = pa.py_buffer(body)
    try:
        _refuse_compression(buffer)
        with ipc.open_stream(buffer) as reader:
            table = reader.read_all()
        if table.num_rows > max_rows:
            raise TooLargeError(f"expected at most {max_rows} rows, got {table.num_rows}")
        # Otherwise Arrow would follow offsets that point outside their buffers.
        table.validate(full=True)
        # Names that are no text raise here, and not later.
        for field in table.schema:
            _ = field.name, getattr(field.type, "tz", None)
    except ServiceError:
        raise
    # Damaged bytes make Arrow raise anything, UnicodeDecodeError and IndexError among them.
    except Exception as error:
        message = f"the body is not a sound Arrow stream: {str(error)[:200]}"
        raise unreadable(message, body) from None
    return table


def write_table(table: pa.Table) -> bytes:
    """Write a stream."""
    sink = pa.BufferOutputStream()
    with ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    written: bytes = sink.getvalue().to_pybytes()
    return written


def _refuse_compression(buffer: pa.Buffer) -> None:
    """Refuse compressed buffers: a few bytes may decompress to any size, as no header tells."""
    for message in ipc.MessageReader.open_stream(buffer):
        if message.type == "schema":
            continue
        raw = message.metadata.to_pybytes()
        batch = _child(FlatTable(raw, encode.Get(packer.uoffset, raw, 0)), _HEADER)
        if message.type == "dictionary":
            batch = _child(batch, _DICTIONARY_DATA)
        if batch.Offset(_COMPRESSION):
            raise UnreadableError(
                "compressed record batches are not accepted; "
                "compress the whole body instead (Content-Encoding: zstd or gzip)"
            )


def _child(table: FlatTable, field: int) -> FlatTable:
    return FlatTable(table.Bytes, table.Indirect(table.Offset(field) + table.Pos))
