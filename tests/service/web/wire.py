"""A transport without a network."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any


class Wire(asyncio.Transport):
    """Keeps what is written to it, and what goes out together.

    Attributes:
        sent: What each write was.
        reading: Whether more would be read.
    """

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[bytes] = []
        self.reading = True
        self._closed = False

    @property
    def written(self) -> bytes:
        """All of it."""
        return b"".join(self.sent)

    def write(self, data: Any) -> None:
        assert not self._closed
        self.sent.append(bytes(data))

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        self.write(b"".join(list_of_data))

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def close(self) -> None:
        self._closed = True

    def is_closing(self) -> bool:
        return self._closed
