from __future__ import annotations

import gzip
import itertools
import zlib
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretell.service.errors import UnreadableError, UnsupportedMediaError
from foretell.service.http.compression import (
    NAMES,
    Decompressor,
    choose_encoding,
    compress,
    unreadable,
)
from tests.service.client import Client
from tests.support.zstd import zstd

FOLD: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "deflate": zlib.compress,
    "zstd": zstd.compress,
    "identity": bytes,
}


def decompress(encoding: str, body: bytes, step: int) -> bytes:
    decoder = Decompressor(encoding)
    pieces = [
        piece
        for start in range(0, len(body), step)
        for piece in decoder.feed(body[start : start + step])
    ]
    decoder.finish()
    return b"".join(pieces)


@given(data=st.data(), bodies=st.lists(st.binary(max_size=3000)), step=st.integers(1, 300))
def test_every_encoding_round_trips(data: st.DataObject, bodies: list[bytes], step: int) -> None:
    encoding = data.draw(st.sampled_from(sorted(FOLD)))
    if encoding == "deflate":
        # Deflate has no concatenated parts.
        bodies = [b"".join(bodies)]
    folded = b"".join(map(FOLD[encoding], bodies or [b""]))
    assert decompress(encoding, folded, step) == b"".join(bodies)


@pytest.mark.parametrize("encoding", ["gzip", "zstd", "deflate"])
def test_bomb_is_decompressed_piece_by_piece(encoding: str) -> None:
    bomb = FOLD[encoding](bytes(64 * 2**20))
    assert len(bomb) < 100_000
    pieces = Decompressor(encoding).feed(bomb)
    assert all(0 < len(piece) <= 2**18 for piece in itertools.islice(pieces, 20))


@pytest.mark.parametrize(
    ("encoding", "window"), [("gzip", 2**15), ("deflate", 2**15), ("zstd", 2**23), ("identity", 0)]
)
def test_memory_of_a_window_is_counted_until_the_end(encoding: str, window: int) -> None:
    held: list[int] = []
    for size in (1000, 20 * 2**20):
        body = FOLD[encoding](bytes(size))
        decoder = Decompressor(encoding, held.append)
        assert sum(map(len, decoder.feed(body))) == size
        assert sum(held) == min(size, window)
        decoder.finish()
        assert sum(held) == 0


def test_several_parts_share_a_window() -> None:
    held: list[int] = []
    decoder = Decompressor("zstd", held.append)
    for _ in range(3):
        for _ in decoder.feed(zstd.compress(bytes(5 * 2**20))):
            assert sum(held) <= 2**23
    assert sum(held) == 2**23


@pytest.mark.parametrize("encoding", ["gzip", "zstd", "deflate"])
def test_damaged_body_is_refused(encoding: str) -> None:
    whole = FOLD[encoding](bytes(range(256)) * 10)
    with pytest.raises(UnreadableError, match="ends too early"):
        decompress(encoding, whole[:-6], 100)
    with pytest.raises(UnreadableError, match=f"is not {encoding}"):
        decompress(encoding, b"{}" + whole, 100)
    with pytest.raises(UnreadableError, match=f"is not {encoding}"):
        decompress(encoding, whole + b"rubbish", 100)


def test_unknown_encoding_is_refused() -> None:
    with pytest.raises(UnsupportedMediaError, match="gzip, deflate, zstd, got 'br'") as error:
        Decompressor("br")
    assert error.value.param == "Content-Encoding"


def test_window_of_gigabytes_is_refused() -> None:
    options = {zstd.CompressionParameter.window_log: 30, zstd.CompressionParameter.checksum_flag: 1}
    compressor = zstd.ZstdCompressor(options=options)
    folded = compressor.compress(b"x" * 2**20) + compressor.flush()
    with pytest.raises(UnreadableError, match="is not zstd"):
        decompress("zstd", folded, 1000)


@pytest.mark.parametrize("encoding", ["gzip", "zstd"])
def test_endless_parts_are_refused(encoding: str) -> None:
    with pytest.raises(UnreadableError, match="at most 1024 compressed parts"):
        decompress(encoding, FOLD[encoding](b"") * 2000, 4096)


@pytest.mark.parametrize(
    ("accepted", "chosen"),
    [
        *((nothing, None) for nothing in ("", "identity", "br", "*", "gzip;q=nonsense", ";,=;q")),
        ("gzip;q=0, deflate;q=0.000", None),
        ("gzip", "gzip"),
        ("DEFLATE", "deflate"),
        # The server takes its first one of equally preferred encodings.
        ("gzip, zstd, deflate, br", "zstd"),
        ("gzip, zstd;q=0.9", "gzip"),
        ("deflate, gzip;q=0.5", "deflate"),
        ("gzip; q=0.2, deflate ; Q=0.4", "deflate"),
        ("gzip;level=9", "gzip"),
    ],
)
def test_encoding_of_an_answer_is_negotiated(accepted: str, chosen: str | None) -> None:
    assert choose_encoding(accepted, ("zstd", "gzip", "deflate")) == chosen


@pytest.mark.parametrize("encoding", ["gzip", "zstd"])
def test_undeclared_compression_is_suggested(encoding: str) -> None:
    error = unreadable("no JSON", memoryview(FOLD[encoding](b"{}")), "here")
    assert error.param == "Content-Encoding"
    assert error.message.endswith(f"{encoding}: send the header Content-Encoding: {encoding}")
    for body in (b"", b"\x1f", b"\x28\xb5\x2f", b"{}", zlib.compress(b"{}")):
        error = unreadable("no JSON", body, "here")
        assert (error.message, error.param) == ("no JSON", "here")


@pytest.mark.parametrize("encoding", NAMES)
def test_parts_are_one_stream(encoding: str) -> None:
    parts = [b"head", memoryview(b"tail" * 1000), b""]
    folded = compress(encoding, parts)
    assert decompress(encoding, folded, 7) == b"head" + b"tail" * 1000
    assert len(folded) < 100


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-32"])
@pytest.mark.parametrize("blanks", [0, 300_000])
@pytest.mark.parametrize(
    "path", ["/forecast", "/backtest", "/v2/models/repeat/infer", "/nixtla/v2/forecast"]
)
def test_byte_order_mark_is_named(client: Client, path: str, blanks: int, encoding: str) -> None:
    body = ("{" + " " * blanks + "}").encode(encoding)
    answer = client.request("POST", path, content=body)
    assert answer.status_code == 400
    assert "begins with a byte order mark: send UTF-8 without one" in answer.text
