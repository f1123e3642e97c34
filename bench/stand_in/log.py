"""What the stand-in writes down of CUDA's calls."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

_LINE = re.compile(
    r"(?P<seconds>\S+) pid (?P<process>\d+) thread (?P<thread>\S+) device (?P<device>\d+) "
    r"(?P<call>.+) (?P<about>\S+) (?P<number>-?\d+)"
)


@dataclass(frozen=True)
class Call:
    """One call.

    Attributes:
        seconds: When, on a clock of the machine.
        thread: Of whom.
        device: Which the thread used.
        name: What it was.
        about: Which stream, graph or piece of memory it was about.
        number: Bytes, launches or an error's code.
    """

    seconds: float
    thread: str
    device: int
    name: str
    about: str
    number: int


def read(log: Path) -> list[Call]:
    """All calls, in order."""
    calls = []
    for line in log.read_text().splitlines():
        found = _LINE.fullmatch(line)
        if found is None:
            raise ValueError(f"{log}: {line!r} is no call")
        calls.append(
            Call(
                float(found["seconds"]),
                found["thread"],
                int(found["device"]),
                found["call"],
                found["about"],
                int(found["number"]),
            )
        )
    return calls


def forbidden(calls: list[Call]) -> list[Call]:
    """Calls that broke a capture."""
    return [call for call in calls if call.name.startswith("FORBIDDEN")]
