"""What was measured so far, a line each: a run that is given again goes on."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

Record = dict[str, Any]


class Results:
    """Records by key, in a file that only grows.

    Args:
        path: The file; it need not exist.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        lines = path.read_text().splitlines() if path.exists() else []
        self.records: dict[str, Record] = dict(json.loads(line) for line in lines)

    def measure(self, key: str, measurement: Callable[[], Record]) -> Record:
        """The record of a key; measured, kept and printed if there is none yet."""
        if key not in self.records:
            record = measurement()
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a") as file:
                file.write(json.dumps([key, record]) + "\n")
            self.records[key] = record
            told = ", ".join(
                f"{name} {value if isinstance(value, str) else format(value, '.4g')}"
                for name, value in record.items()
            )
            print(f"{key}: {told}", flush=True)
        return self.records[key]
