from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

import pytest

from foretell.bundle import nearness
from foretell.bundle.nearness import Index

MANY = [f"store-{number:04}-load" for number in range(2000)]
ALIKE = 0.6


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("store-0042-laod", "store-0042-load"),
        ("sotre-0042-load", "store-0042-load"),
        ("tore-0042-load", "store-0042-load"),
        ("Store_0042_Load", "store-0042-load"),
        ("store-0042", "store-0042-load"),
        ("wind", None),
        ("", None),
    ],
)
def test_the_nearest_of_many_names(name: str, meant: str | None) -> None:
    shuffled = random.Random(0).sample(MANY, len(MANY))
    assert Index(shuffled).nearest(name, ALIKE) == meant


@pytest.mark.parametrize("number", [0, 999, 1999])
def test_every_transposition_is_recognised(number: int) -> None:
    index, name = Index(MANY), MANY[number]
    for place in range(len(name) - 1):
        given = name[:place] + name[place + 1] + name[place] + name[place + 2 :]
        near = index.nearest(given, ALIKE)
        assert near is not None
        assert near == name or given in MANY or sorted(near) != sorted(name)


def test_few_of_many_names_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[int] = []
    plain = nearness.nearest

    def counted(name: str, known: Iterable[str], *more: Any) -> str | None:
        known = list(known)
        compared.append(len(known))
        return plain(name, known, *more)

    monkeypatch.setattr(nearness, "nearest", counted)
    index = Index(MANY)
    for name in ("store-0042-laod", "x" * 1000, "zzz", ""):
        index.nearest(name, ALIKE)
    assert len(compared) == 4
    assert max(compared) <= 16


def test_names_in_order() -> None:
    assert Index(["b", "A", "c"]).names == ["A", "b", "c"]
    assert Index([]).nearest("a") is None
