from __future__ import annotations

import gzip
import zlib

import pytest

from foretell.service.doors.inference.compression import choose_encoding, compress


@pytest.mark.parametrize(
    ("accepted", "chosen"),
    [
        ("", None),
        ("identity", None),
        ("br, zstd", None),
        ("*", None),
        ("gzip", "gzip"),
        ("DEFLATE", "deflate"),
        ("gzip, deflate, br", "gzip"),
        ("deflate, gzip;q=0.5", "deflate"),
        ("gzip; q=0.2, deflate ; Q=0.4", "deflate"),
        ("gzip;q=0, deflate;q=0.000", None),
        ("gzip;q=nonsense", None),
        ("gzip;level=9", "gzip"),
        (";,=;q", None),
    ],
)
def test_the_caller_chooses(accepted: str, chosen: str | None) -> None:
    assert choose_encoding(accepted, 100_000) == chosen


def test_small_answers_stay_as_they_are() -> None:
    assert choose_encoding("gzip", 500) is None


def test_parts_are_one_stream() -> None:
    parts = [b"head", memoryview(b"tail" * 1000), b""]
    whole = b"head" + b"tail" * 1000
    assert gzip.decompress(compress("gzip", parts)) == whole
    assert zlib.decompress(compress("deflate", parts)) == whole
    assert len(compress("gzip", parts)) < 100
