"""The stand-in's log of CUDA's calls."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

_LINE = re.compile(
    r"\S+ pid \d+ thread \S+ device (?P<device>\d+) (?P<call>.+) (?P<about>\S+) -?\d+"
)


@dataclass(frozen=True)
class Call:
    """One call.

    Attributes:
        device: Device of the thread.
        name: Name of the function.
        about: The stream, graph or memory that it was called with.
    """

    device: int
    name: str
    about: str


def read(log: Path) -> list[Call]:
    """All calls, in order."""
    calls = []
    for line in log.read_text().splitlines():
        found = _LINE.fullmatch(line)
        if found is None:
            raise ValueError(f"{log}: {line!r} is no call")
        calls.append(Call(int(found["device"]), found["call"], found["about"]))
    return calls


def forbidden(calls: list[Call]) -> list[Call]:
    """Calls that broke a capture."""
    return [call for call in calls if call.name.startswith("FORBIDDEN")]
