"""Compressed answers."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator

# HTTP's "deflate" is zlib's format, not the bare stream. Not zstd: there are clients that offer it
# on their own and then cannot read it.
_WINDOWS = {"gzip": zlib.MAX_WBITS + 16, "deflate": zlib.MAX_WBITS}
# Forecasts are noise after their first digits: more work saves little.
_LEVEL = 1
_NOT_WORTH = 1024


def choose_encoding(accepted: str, size: int) -> str | None:
    """How to compress an answer; None if it is to stay as it is.

    Args:
        accepted: The request's header Accept-Encoding.
        size: Bytes of the answer.
    """
    if size < _NOT_WORTH:
        return None
    weights = dict(_weights(accepted))
    best = max(_WINDOWS, key=lambda encoding: weights.get(encoding, 0.0))
    return best if weights.get(best, 0.0) > 0 else None


def compress(encoding: str, parts: Iterable[bytes | memoryview]) -> bytes:
    """The parts together, compressed.

    Args:
        encoding: One that `choose_encoding` returns.
        parts: Bytes.
    """
    compressor = zlib.compressobj(_LEVEL, wbits=_WINDOWS[encoding])
    return b"".join([*(compressor.compress(part) for part in parts), compressor.flush()])


def _weights(accepted: str) -> Iterator[tuple[str, float]]:
    """The encodings that a header names, and how much each is wanted."""
    for entry in accepted.split(","):
        encoding, _, parameter = entry.partition(";")
        name, _, weight = parameter.partition("=")
        yield encoding.strip().lower(), _weight(weight) if name.strip().lower() == "q" else 1.0


def _weight(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0
