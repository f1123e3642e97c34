"""What is wrong, noted while the rest goes on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class FaultError(Exception):
    """Something is not as it should be; the message says what."""


@contextmanager
def noting(faults: list[str], where: str) -> Iterator[None]:
    """Take whatever fails within for a fault, of one line, and go on behind it."""
    try:
        yield
    # A GPU is not lent for long: what else can be learned there has to be.
    except Exception as error:
        said = f"{error}" or type(error).__name__
        if error.__cause__ and str(error.__cause__) not in said:
            said += f": {error.__cause__}"
        faults.append(" ".join(f"{where}: {said}".split()))
