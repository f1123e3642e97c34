"""What is plugged in is known to its own file alone: to it, its faster forms and the importers."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from foretell.models.attention.mechanism import MECHANISMS
from foretell.models.forecaster import ARCHITECTURES
from tests.test_architecture import PACKAGES, imported_by, where

NAMES = {*ARCHITECTURES, *MECHANISMS}
# By convention one file a plug, whose classes nobody else asks for.
FOLDERS = ("foretell.models.architectures.", "foretell.models.attention.")
# What all mechanisms have in common lies next to them.
COMMON = {
    f"foretell.models.attention.{name}" for name in ("evidence", "heads", "mechanism", "notation")
}

# Where classes are imported, and so may be told apart.
CLASSES_IN = (
    "models/architectures/",
    "models/attention/",
    # Forms of exact types; what has none stays as it is.
    "export/rewrites/",
    "foretell/importers/",
    # The mechanism of who names none.
    "models/attending.py",
)
# Where names are written.
NAMES_IN = (
    "models/architectures/",
    "models/attention/",
    "foretell/importers/",
    # The demo's models are these three.
    "foretell/commands/demo.py",
    "foretell/demo/models.py",
    # A baseline that is trained.
    "foretell/backtesting/backtest.py",
    # An example too: what the interface's document shows.
    "service/forecast/answers.py",
    # A mechanism has the name of what is between two origins.
    "service/forecast/backtest.py",
    "foretell/client/backtesting.py",
    # Another one has Ray's word for a cluster of this machine alone.
    "foretell/batch/on_ray.py",
    "foretell/commands/batch.py",
)


def specific(source: str) -> set[str]:
    """Modules of single architectures and mechanisms that a file imports."""
    found = imported_by(source, "source")
    return {
        name
        for name in found
        if name.startswith(FOLDERS) and ".".join(name.split(".")[:4]) not in COMMON
    }


def named(source: str) -> set[str]:
    """Architectures and mechanisms that a file has as text."""
    texts = (node.value for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Constant))
    return {text for text in texts if isinstance(text, str) and text in NAMES}


def elsewhere(places: tuple[str, ...]) -> Iterator[tuple[str, Path]]:
    for package in PACKAGES:
        yield from (found for found in where(package) if not found[0].startswith(places))


def test_nobody_else_tells_them_apart() -> None:
    assert not [name for name, path in elsewhere(CLASSES_IN) if specific(path.read_text())]


def test_nobody_else_names_them() -> None:
    assert not [name for name, path in elsewhere(NAMES_IN) if named(path.read_text())]


@pytest.mark.parametrize("places", [CLASSES_IN, NAMES_IN])
def test_every_exception_is_one(places: tuple[str, ...]) -> None:
    found = {
        name
        for package in PACKAGES
        for name, path in where(package)
        if specific(path.read_text()) or named(path.read_text())
    }
    assert all(any(name.startswith(place) for name in found) for place in places)


@pytest.mark.parametrize(
    "source",
    [
        "from foretell.models.architectures.dlinear import DLinear",
        "from foretell.models.architectures import dlinear",
        "import foretell.models.attention.softmax as one",
        "def f():\n    import_module('foretell.models.attention.softmax')",
    ],
)
def test_no_import_is_overlooked(source: str) -> None:
    assert specific(source)
    assert not specific("from foretell.models.attention.evidence import Dense")


@pytest.mark.parametrize(
    "source",
    [
        "x == 'softmax'",
        "match x:\n    case 'softmax' | 'other': pass",
        "x = {'dlinear': 1}",
        "Literal['softmax']",
        "f'{x}' in ('transformer',)",
    ],
)
def test_no_name_is_overlooked(source: str) -> None:
    assert named(source)
    assert not named("'''About softmax.'''")
