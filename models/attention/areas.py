"""Patterns of keys that queries read: areas of a map, in blocks without much waste."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Positions = NDArray[np.int64]
Mask = NDArray[np.bool_]

# Products of fewer queries are not faster.
_NARROWEST = 32


class Area(NamedTuple):
    """Blocks of queries, each with a block of keys. Positions outside of the sequence are ignored.

    Attributes:
        queries: `[blocks, m]`; every query occurs once.
        keys: `[blocks, k]`.
        reads: Whether queries read keys, from the positions of both.
    """

    queries: Positions
    keys: Positions
    reads: Callable[[Positions, Positions], Mask]


class Pattern(NamedTuple):
    """The pattern by which a sequence reads itself: the union of areas.

    Attributes:
        length: Length of the sequence.
        causal: Whether no later position is read.
        areas: Every query reads itself in one of them.
        whole: Queries that read everything, in ascending order.
    """

    length: int
    causal: bool
    areas: tuple[Area, ...]
    whole: tuple[int, ...] = ()

    def mask(self) -> Mask:
        """Mask `[length, length]` of the keys that each query reads."""
        query, key = np.ogrid[: self.length, : self.length]
        read = np.isin(query, self.whole)
        for area in self.areas:
            read = read | area.reads(query, key)
        return read & (key <= query) if self.causal else read

    def tables(self) -> list[tuple[Area, Positions, Mask]]:
        """The areas that add keys, with the places of all queries in their blocks, and masks.

        The mask `[length, k]` leaves out keys of earlier areas.
        """
        found: list[tuple[Area, Positions, Mask]] = []
        for area in self.areas:
            query, key = area.queries[:, :, None], area.keys[:, None]
            read = area.reads(query, key) & (key >= 0) & (key < self.length)
            if self.causal:
                read = read & (key <= query)
            for before, *_ in found:
                read = read & ~before.reads(query, key)
            there = np.flatnonzero(area.queries < self.length)
            places = there[np.argsort(area.queries.ravel()[there])]
            whole = np.broadcast_to(read, (*area.queries.shape, area.keys.shape[1]))
            mask = whole.reshape(area.queries.size, -1)[places]
            if mask.any():
                found.append((area, places, mask))
        return found


def near(length: int, window: int, *, causal: bool = False) -> Area:
    """Keys less than `window` positions away."""
    window = min(window, length)
    block = max(window, _NARROWEST)
    reads = partial(_near, window=window)
    around = np.arange(1 - window, block if causal else block + window - 1)
    if len(around) >= length:
        everything = np.arange(length)[None]
        return Area(everything, everything, reads)
    starts = np.arange(0, length, block)[:, None]
    return Area(starts + np.arange(block), starts + around, reads)


def strided(length: int, dilation: int) -> Area:
    """Keys that are a multiple of `dilation` positions away."""
    dilation = min(dilation, length)
    each = np.arange(dilation)[:, None] + np.arange(0, length, dilation)
    return Area(each, each, partial(_strided, dilation=dilation))


def columns(length: int, keys: tuple[int, ...]) -> Area:
    """A few keys, for all queries."""
    return Area(np.arange(length)[None], np.array([keys]), partial(_among, keys=keys))


def _near(query: Positions, key: Positions, *, window: int) -> Mask:
    there: Mask = np.abs(query - key) < window
    return there


def _strided(query: Positions, key: Positions, *, dilation: int) -> Mask:
    there: Mask = (query - key) % dilation == 0
    return there


def _among(_: Positions, key: Positions, *, keys: tuple[int, ...]) -> Mask:
    return np.isin(key, keys)
