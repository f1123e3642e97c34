"""Cuts large JSON at commas, into pieces that are JSON by themselves.

Each piece is completed with the brackets that are open around it.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

# Bytes of a piece, which take at most 2 ms to parse.
_PIECE = 64 * 1024
# Most open brackets that parsers accept.
_DEEPEST = 1024

_COMMA, LIST, _OBJECT, _END, _QUOTE, _BACKSLASH = range(1, 7)
_KINDS = np.zeros(256, np.uint8)
for _kind, _marks in enumerate((b",", b"[", b"{", b"]}", b'"', b"\\"), start=1):
    _KINDS[[*_marks]] = _kind

# Names of members that stand for the JSON before and after a piece; no client can know them.
BEFORE, AFTER = (secrets.token_hex(8) for _ in range(2))
_CONTINUED = {LIST: "[", _OBJECT: f'{{"{BEFORE}":'}
_INTERRUPTED = {LIST: "null]", _OBJECT: f'"{AFTER}":null}}'}
_CLOSED = {LIST: "]", _OBJECT: "}"}


class Opened(NamedTuple):
    """A bracket that a piece opens and does not close; `key` is the text since the last mark."""

    kind: int
    key: bytes
    start: int


@dataclass
class Piece:
    # JSON: `added` bytes of brackets, then the part of the body from `start` on.
    text: bytes
    start: int
    added: int
    is_last: bool
    # Number of earlier brackets that stay open; the additional brackets that it opens.
    kept: int
    opened: list[Opened]
    # `[brackets]`: their places in the part, and the change of depth after each.
    brackets: NDArray[np.int64]
    depths: NDArray[np.int64]

    def end_of(self, depth: int) -> int:
        """Where in the body an earlier bracket is closed; depth -1 is the innermost."""
        return self.start + int(self.brackets[np.argmax(self.depths == depth)]) + 1


def pieces_of(body: memoryview) -> Iterator[Piece]:
    """The pieces of a body, in order."""
    start, stack = 0, list[int]()
    while start < len(body):
        end, at, kinds = _part(body, start)
        piece = _piece(body, start, end, at, kinds, stack)
        yield piece
        stack = stack[: piece.kept] + [each.kind for each in piece.opened]
        start = end


def _part(body: memoryview, start: int) -> tuple[int, NDArray[np.int64], NDArray[np.uint8]]:
    """The end of the part from `start` on, and its structure without the final comma.

    Only its last `_PIECE` bytes have commas. Before them is one text, number or blank, or too many
    brackets for JSON that a parser accepts.
    """
    end, is_quoted, brackets = start, False, 0
    found: list[tuple[NDArray[np.int64], NDArray[np.uint8]]] = []
    while end < len(body):
        begin, end = end, min(end + _PIECE, len(body))
        text = bytes(body[begin:end])
        if (len(text) - len(text.rstrip(b"\\"))) % 2:
            # The last backslash escapes the next byte.
            end = min(end + 1, len(body))
        at, kinds, is_quoted = _structure(np.frombuffer(body[begin:end], np.uint8), is_quoted)
        at += begin - start
        commas = np.flatnonzero(kinds == _COMMA)
        if len(commas) and end < len(body):
            cut = int(commas[-1])
            end = start + int(at[cut]) + 1
            found.append((at[:cut], kinds[:cut]))
            break
        found.append((at, kinds))
        brackets += len(kinds)
        if brackets > 2 * _DEEPEST:
            break
    at, kinds = (np.concatenate(each) for each in zip(*found, strict=True))
    return end, at, kinds


def _structure(
    text: NDArray[np.uint8], is_quoted: bool
) -> tuple[NDArray[np.int64], NDArray[np.uint8], bool]:
    """Places and kinds of brackets and commas outside of strings, and whether a string is open.

    `is_quoted`: a string is open at the start of the text. The text is a piece at most, as this
    takes many times its memory.
    """
    kinds = _KINDS[text]
    at = np.flatnonzero(kinds)
    kinds = kinds[at]
    if not is_quoted and not (kinds >= _QUOTE).any():
        return at, kinds, False
    quotes = kinds == _QUOTE
    slashes = at[kinds == _BACKSLASH]
    if len(slashes):
        # Every other backslash of a run escapes the next byte.
        order = np.arange(len(slashes))
        firsts = np.maximum.accumulate(np.where(np.diff(slashes, prepend=-2) != 1, order, 0))
        escaped = np.zeros(len(text) + 1, bool)
        escaped[slashes[(order - firsts) % 2 == 0] + 1] = True
        quotes &= ~escaped[at]
    before = np.cumsum(quotes) + is_quoted
    outside = (kinds < _QUOTE) & (before % 2 == 0)
    return at[outside], kinds[outside], bool((quotes.sum() + is_quoted) % 2)


def _piece(
    body: memoryview,
    start: int,
    end: int,
    at: NDArray[np.int64],
    kinds: NDArray[np.uint8],
    stack: list[int],
) -> Piece:
    """The piece of a part; `stack` has the kinds of the brackets that are open before it."""
    ranks = np.flatnonzero(kinds != _COMMA)
    steps = np.where(kinds[ranks] == _END, -1, 1)
    depths = np.cumsum(steps)
    kept = max(0, len(stack) + int(depths.min(initial=0)))
    # A bracket stays open if no later depth is below its own.
    lowest = np.minimum.accumulate(depths[::-1])[::-1]
    opened = []
    # With more, no parser reads the piece.
    for rank in ranks[(steps > 0) & (depths == lowest)][: _DEEPEST + 1].tolist():
        before = int(at[rank - 1]) + 1 if rank else 0
        position = start + int(at[rank])
        opened.append(Opened(int(kinds[rank]), bytes(body[start + before : position]), position))
    prefix = "".join([_CONTINUED[kind] for kind in stack]) + ("null," if stack else "")
    suffix, is_last = "", end == len(body)
    if not is_last and (now := stack[:kept] + [each.kind for each in opened]):
        suffix = _INTERRUPTED[now[-1]] + "".join([_CLOSED[kind] for kind in now[-2::-1]])
    text = b"".join((prefix.encode(), body[start:end], suffix.encode()))
    return Piece(text, start, len(prefix), is_last, kept, opened, at[ranks], depths)
