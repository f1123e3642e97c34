"""Reading a table as its error messages say, until it is read."""

import re
import shlex
from pathlib import Path

from foretell.data.errors import DataError
from foretell.data.panel import Panel
from foretell.data.reading import Reading, read

_FLAG = re.compile(r"--([a-z-]+) (?!says)('(?:[^']|'\"'\"')*'|[^\s;:]+)")


def flags(message: str) -> dict[str, str]:
    """The options that a message names with a value, as names and values of a reading."""
    return {
        name.replace("-", "_"): shlex.split(value)[0]
        for name, value in reversed(_FLAG.findall(message))
        if name.replace("-", "_") in Reading.model_fields
    }


def follow(path: Path, **options: str) -> tuple[Panel, dict[str, str]]:
    """Read a file; where it is refused, again with the options that the message names.

    Returns:
        What was read, and the options.
    """
    for _ in range(4):
        try:
            return read(path, Reading(**options)), options
        except DataError as error:
            told = flags(str(error))
            if not told.items() - options.items():
                raise AssertionError("no remedy") from error
            options |= told
    raise AssertionError(f"refused with {options}")
