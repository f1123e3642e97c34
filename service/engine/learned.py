"""Offsets of quantiles that the ledger has learned: a bounded snapshot, read without a database."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import NamedTuple

from foretell.bundle.calibration import Calibration

_MOST_BYTES = 64 * 1024 * 1024


class Key(NamedTuple):
    """A version of a model and a series of a namespace; the name is None for all of them."""

    model: str
    version: str
    namespace: str
    name: str | None = None

    @property
    def of_namespace(self) -> Key:
        """The key of all series of the namespace."""
        return self._replace(name=None)


class Offsets(NamedTuple):
    """Learned offsets, in place of a bundle's.

    Attributes:
        origins: Number of forecasts that were compared with their actual values.
        stored: Digest of the manifest of the bundle that they correct; they suit no other one.
    """

    calibration: Calibration
    origins: int
    stored: str

    @property
    def bytes(self) -> int:
        return self.calibration.offsets.nbytes + self.calibration.levels.nbytes


class LedgerView(NamedTuple):
    """A ledger as one request sees it.

    Attributes:
        takes: Whether it takes the forecasts of the request.
        namespace: Namespace of the request's series.
        learned: Offsets that it has learned.
        learns: Whether histories count as actual values.
    """

    takes: bool
    namespace: str
    learned: LearnedOffsets
    learns: bool = False


class LearnedOffsets:
    """Offsets by version and series; those that were learned longest ago make room for others."""

    def __init__(self, most_bytes: int = _MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._lock = threading.Lock()
        self._offsets: dict[Key, Offsets] = {}
        self._bytes = 0
        # Called in order with each new entry, or with None for one that was forgotten. They must
        # not call methods of this object.
        self.listeners: list[Callable[[Key, Offsets | None], None]] = []

    def find(self, key: Key, stored: str) -> tuple[Offsets, Key] | None:
        """The offsets of a series, or those of all series of its namespace, with their key.

        Args:
            key: The key of the series.
            stored: Digest of the manifest of the bundle.

        Returns:
            None if neither was learned for this bundle.
        """
        for each in (key, key.of_namespace):
            if (found := self._offsets.get(each)) is not None and found.stored == stored:
                return found, each
        return None

    def put(self, key: Key, offsets: Offsets) -> None:
        with self._lock:
            old = self._offsets.pop(key, None)
            self._offsets[key] = offsets
            self._bytes += offsets.bytes - (0 if old is None else old.bytes)
            while self._bytes > self._most_bytes and len(self._offsets) > 1:
                # The first key is the one that was put longest ago.
                self._bytes -= self._offsets.pop(next(iter(self._offsets))).bytes
            for listener in self.listeners:
                listener(key, offsets)

    def forget(self, key: Key) -> None:
        """Remove the offsets of a key, if there are any."""
        with self._lock:
            self._forget(key)

    def forget_series(self, namespace: str, name: str) -> None:
        """Remove the offsets of a series of all versions."""
        with self._lock:
            for key in [key for key in self._offsets if key[2:] == (namespace, name)]:
                self._forget(key)

    def items(self) -> list[tuple[Key, Offsets]]:
        """All offsets, those learned longest ago first."""
        with self._lock:
            return [*self._offsets.items()]

    def _forget(self, key: Key) -> None:
        if (offsets := self._offsets.pop(key, None)) is None:
            return
        self._bytes -= offsets.bytes
        for listener in self.listeners:
            listener(key, None)
