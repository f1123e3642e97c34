"""Compressed bodies of requests, in which a few bytes may expand to gigabytes, and of answers."""

from __future__ import annotations

import codecs
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence

from fastapi import Response

from foretell.service.errors import UnreadableError, UnsupportedMediaError

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

# Decompressing a piece takes the event loop well under a millisecond.
_PIECE = 256 * 1024
_GZIP, _ZLIB = zlib.MAX_WBITS + 16, zlib.MAX_WBITS
# RFC 8878 recommends decoders to support windows of 8 MiB; they may refuse larger ones.
_WINDOW_LOG = 23
_ZSTD_WINDOW = {int(zstd.DecompressionParameter.window_log_max): _WINDOW_LOG}
# Bytes of the windows of all formats.
_WINDOWS = {"gzip": 32 * 1024, "deflate": 32 * 1024, "zstd": 1 << _WINDOW_LOG}

# Parts may be empty: any number of them fits a small body, and each takes time.
_MOST_PARTS = 1024

# The later digits of forecasts are noise, which no level compresses much.
_LEVEL = 1

# A body as received, or its joined pieces.
Body = bytes | bytearray
NAMES = ("gzip", "deflate", "zstd")
# The first bytes of compressed bodies; zlib has no distinctive ones.
_MAGIC = {"gzip": b"\x1f\x8b", "zstd": b"\x28\xb5\x2f\xfd"}
# Some programs put them before texts, also in UTF-16 and UTF-32.
_BYTE_ORDER_MARKS = (codecs.BOM_UTF8, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE, codecs.BOM_UTF32_BE)


def unreadable(message: str, body: Body | memoryview, param: str | None = None) -> UnreadableError:
    """The error of an unreadable body, with a hint if it is compressed or has a mark."""
    for name, magic in _MAGIC.items():
        if body[: len(magic)] == magic:
            message += f"; it looks like {name}: send the header Content-Encoding: {name}"
            return UnreadableError(message, param="Content-Encoding")
    if bytes(body[:4]).startswith(_BYTE_ORDER_MARKS):
        message += "; it begins with a byte order mark: send UTF-8 without one"
    return UnreadableError(message, param=param)


class _Zlib:
    """zlib's decompressor, with the interface of zstd's."""

    def __init__(self, bits: int) -> None:
        self._object = zlib.decompressobj(bits)

    @property
    def eof(self) -> bool:
        return self._object.eof

    @property
    def unused_data(self) -> bytes:
        return self._object.unused_data

    @property
    def needs_input(self) -> bool:
        return not self._object.unconsumed_tail

    def decompress(self, data: bytes, max_length: int) -> bytes:
        return self._object.decompress(self._object.unconsumed_tail + data, max_length)


_OPEN: dict[str, Callable[[], _Zlib | zstd.ZstdDecompressor]] = {
    "gzip": lambda: _Zlib(_GZIP),
    "deflate": lambda: _Zlib(_ZLIB),
    "zstd": lambda: zstd.ZstdDecompressor(options=_ZSTD_WINDOW),
}


class Decompressor:
    """Decompresses one body; `reserve` gets the approximate change of its memory in bytes."""

    def __init__(self, encoding: str, reserve: Callable[[int], object] = lambda _: None) -> None:
        # RFC 9110, 8.4.1.3: x-gzip is another name of gzip.
        name = encoding.strip().lower()
        name = "gzip" if name == "x-gzip" else name
        if name not in ("identity", *_OPEN):
            raise UnsupportedMediaError(
                f"expected one of {', '.join(NAMES)}, got {encoding[:60]!r}",
                param="Content-Encoding",
                accepted=NAMES,
            )
        self._name = name
        self._parts = 1
        self._reserve = reserve
        self._window = 0
        self._stream = _OPEN[name]() if name in _OPEN else None

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Decompress the next bytes of the body, in pieces of at most 256 KiB."""
        if self._stream is None:
            yield chunk
            return
        try:
            while chunk or not (self._stream.needs_input or self._stream.eof):
                if self._stream.eof:
                    self._parts += 1
                    if self._parts > _MOST_PARTS:
                        raise UnreadableError(
                            f"expected at most {_MOST_PARTS} compressed parts in a row",
                            param="Content-Encoding",
                        )
                    # RFC 1952 and RFC 8878: a body may be several compressed parts in a row.
                    self._stream = _OPEN[self._name]()
                piece = self._stream.decompress(chunk, _PIECE)
                # The stream keeps its window of decompressed bytes.
                growth = min(len(piece), _WINDOWS[self._name] - self._window)
                self._window += growth
                self._reserve(growth)
                yield piece
                chunk = self._stream.unused_data
        except (zlib.error, zstd.ZstdError, EOFError) as error:
            raise UnreadableError(
                f"the body is not {self._name}: {error}", param="Content-Encoding"
            ) from None

    def finish(self) -> None:
        """End the body; raises `UnreadableError` if bytes are missing."""
        if self._stream is not None and not self._stream.eof:
            raise UnreadableError(f"the {self._name} body ends too early", param="Content-Encoding")
        self._stream = None
        self._reserve(-self._window)


def choose_encoding(accepted: str, offered: Sequence[str]) -> str | None:
    """The offered encoding with the largest weight in Accept-Encoding, if any is accepted."""
    weights = accepted_weights(accepted)
    best = max(offered, key=lambda encoding: weights.get(encoding, 0.0))
    return best if weights.get(best, 0.0) > 0 else None


def compress(encoding: str, parts: Iterable[bytes | memoryview]) -> bytes:
    """Compress parts into one body, with one of `NAMES`."""
    if encoding == "zstd":
        compressor = zstd.ZstdCompressor(_LEVEL)
        return b"".join([*map(compressor.compress, parts), compressor.flush()])
    stream = zlib.compressobj(_LEVEL, wbits=_GZIP if encoding == "gzip" else _ZLIB)
    return b"".join([*map(stream.compress, parts), stream.flush()])


def respond(body: bytes, accepted: str, media_type: str) -> Response:
    """An answer that may be large, compressed if the client accepts it; call this on a thread."""
    # The middleware adds `Vary` to answers that are not compressed yet.
    headers = {}
    if encoding := choose_encoding(accepted, ("zstd", "gzip")):
        body = compress(encoding, [body])
        headers = {"Content-Encoding": encoding, "Vary": "Accept-Encoding"}
    return Response(body, headers=headers, media_type=media_type)


def accepted_weights(header: str) -> dict[str, float]:
    """The names in a header such as Accept, `name;q=weight, …`, and their weights (1 if absent).

    RFC 9110, 12.4.2. A weight that is not a number counts as 0.
    """
    weights = {}
    for entry in header.split(","):
        name, *parameters = entry.split(";")
        given = dict(parameter.strip().lower().partition("=")[::2] for parameter in parameters)
        try:
            weight = float(given.get("q", "1"))
        except ValueError:
            weight = 0.0
        weights[name.strip().lower()] = weight
    return weights
