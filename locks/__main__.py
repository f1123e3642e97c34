"""`make lock`: writes the files of locks/."""

from __future__ import annotations

import sys

from locks.files import Files
from locks.index import files, requirements
from locks.sets import (
    FOLDER,
    TARGETS,
    Lock,
    LockError,
    Target,
    marker,
    read_locks,
    read_pins,
    resolve,
)

_HEAD = """\
# `make lock` writes this file from constraints.txt and pyproject.toml.
# The sums are of all wheels on PyPI, the packages for Python 3.11 to 3.14 on Linux.
"""


def write(
    lock: Lock, where: dict[str, set[Target]], pins: dict[str, str], found: dict[str, Files]
) -> None:
    """Write a file of locks/.

    Args:
        lock: The set of packages.
        where: The targets on which each package is installed.
        pins: The version of each package.
        found: The files of each package.

    Raises:
        LockError: a package has no file for one of its targets.
    """
    lines = [_HEAD]
    for name, targets in sorted(where.items()):
        condition = f" ; {text}" if (text := marker(targets)) else ""
        try:
            sums = found[name].fitting(targets)
        except LockError as error:
            raise LockError(f"{name}=={pins[name]}: {error}") from None
        hashes = "".join(f" \\\n    --hash=sha256:{one}" for one in sums)
        lines.append(f"{name}=={pins[name]}{condition}{hashes}\n")
    lock.path.write_text("".join(lines))


def main() -> None:
    """Write all files."""
    pins, locks = read_pins(), read_locks()
    needs, found = requirements(pins), files(pins)
    for lock in locks:
        where: dict[str, set[Target]] = {}
        for target in TARGETS:
            for name in resolve(lock, target, pins, needs.__getitem__):
                where.setdefault(name, set()).add(target)
        write(lock, where, pins, found)
    for path in set(FOLDER.glob("*.txt")) - {lock.path for lock in locks}:
        path.unlink()


if __name__ == "__main__":
    try:
        main()
    except LockError as error:
        sys.exit(str(error))
