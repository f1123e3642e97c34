"""Offsets of quantiles that the ledger has learned: a bounded snapshot, read without a database."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import NamedTuple

from foretell.bundle.calibration import Calibration

_MOST_BYTES = 64 * 1024 * 1024


class Key(NamedTuple):
    """A version of a model and one of its series; the namespace and the name are None for all."""

    model: str
    version: str
    namespace: str | None = None
    name: str | None = None


class Offsets(NamedTuple):
    """Learned offsets, in place of a bundle's.

    Attributes:
        origins: Number of forecasts that were compared with their actual values.
    """

    calibration: Calibration
    origins: int

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
        # Called with each new entry, on the thread that adds it.
        self.listeners: list[Callable[[Key, Offsets], None]] = []

    def find(
        self, model: str, version: str, namespace: str, name: str
    ) -> tuple[Offsets, Key] | None:
        """The offsets of a series, or those of its model, with their key; None without any."""
        for key in (Key(model, version, namespace, name), Key(model, version)):
            if (found := self._offsets.get(key)) is not None:
                return found, key
        return None

    def of_model(self, key: Key) -> Offsets | None:
        """The offsets of the model of a key."""
        return self._offsets.get(Key(key.model, key.version))

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

    def forget(self, namespace: str, name: str) -> None:
        """Remove the offsets of a series."""
        with self._lock:
            for key in [key for key in self._offsets if key[2:] == (namespace, name)]:
                self._bytes -= self._offsets.pop(key).bytes

    def items(self) -> list[tuple[Key, Offsets]]:
        """All offsets, those learned longest ago first."""
        with self._lock:
            return [*self._offsets.items()]
