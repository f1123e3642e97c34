from __future__ import annotations

from typing import Any

from foretell.service.batching.observer import Observers


class Heard:
    def __init__(self) -> None:
        self.told: list[tuple[str, tuple[float, ...]]] = []

    def __getattr__(self, name: str) -> Any:
        return lambda *values: self.told.append((name, values))


def test_all_are_told_the_same() -> None:
    one, other = Heard(), Heard()
    both = Observers(one, other)
    both.waited(1.0)
    both.assembled(2.0)
    both.ran(3, 4.0)
    both.filled(0.5)
    both.expired()
    both.cancelled()
    assert one.told == other.told
    assert one.told == [
        ("waited", (1.0,)),
        ("assembled", (2.0,)),
        ("ran", (3, 4.0)),
        ("filled", (0.5,)),
        ("expired", ()),
        ("cancelled", ()),
    ]
