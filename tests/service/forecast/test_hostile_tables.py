"""Streams that somebody damaged, on purpose or not."""

from __future__ import annotations

import contextlib
from datetime import datetime

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from foretell.service.errors import ServiceError
from foretell.service.forecast.arrow import read_table, write_table
from foretell.service.forecast.table import read_groups, read_times, read_values
from foretell.timeaxis.frequency import Frequency

HOURS = [datetime(2024, 1, 1, hour) for hour in range(3)]
STREAM = write_table(
    pa.table(
        {
            "unique_id": pa.array(["a", "a", "b"]).dictionary_encode(),
            "ds": pa.array(HOURS, pa.timestamp("us", "UTC")),
            "load": [1.0, None, 3.0],
            "note": pa.array(["x", "yy", "z"], pa.string_view()),
        }
    )
)


@settings(max_examples=1000)
@given(st.dictionaries(st.integers(0, len(STREAM) - 1), st.integers(0, 255), max_size=4))
def test_a_damaged_stream_is_read_or_refused(changes: dict[int, int]) -> None:
    body = bytearray(STREAM)
    for at, value in changes.items():
        body[at] = value
    with contextlib.suppress(ServiceError):
        table = read_table(body, 100)
        read_groups(table, 1024)
        read_times(table, Frequency.parse("h"))
        list(read_values(table, ("load",)))


@given(st.integers(0, len(STREAM)))
def test_a_stream_that_ends_early_is_read_or_refused(length: int) -> None:
    with contextlib.suppress(ServiceError):
        read_table(STREAM[:length], 100)
