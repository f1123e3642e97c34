"""Files of a version on an index, and the sums of those that a lock allows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

from packaging.tags import Tag, compatible_tags, cpython_tags
from packaging.utils import parse_wheel_filename

from locks.sets import LockError, Target

# The newest C library that a wheel may need: of Debian 12.
_GLIBC = 36


@dataclass(frozen=True)
class Files:
    """Names and sums of the files of a version."""

    wheels: dict[str, str]
    source: dict[str, str]

    def fitting(self, targets: Iterable[Target]) -> list[str]:
        """Sums of all wheels, and of the source if a target has no wheel.

        Raises:
            LockError: a target has neither.
        """
        tags = {tag for name in self.wheels for tag in parse_wheel_filename(name)[3]}
        lacking = [target for target in targets if not tags & _tags(target)]
        if lacking and not self.source:
            raise LockError(f"PyPI has no wheel for {lacking[0]}, and no source")
        return sorted([*self.wheels.values(), *(self.source.values() if lacking else ())])


@cache
def _tags(target: Target) -> frozenset[Tag]:
    """The kinds of wheels that can be installed on a target."""
    version = tuple(map(int, target.python.split(".")))
    systems = [f"manylinux_2_{minor}" for minor in range(5, _GLIBC + 1)]
    systems += ["manylinux1", "manylinux2010", "manylinux2014", "linux"]
    platforms = [f"{system}_{target.machine}" for system in systems]
    interpreter = f"cp{version[0]}{version[1]}"
    return frozenset(
        (
            *cpython_tags(version, platforms=platforms),
            *compatible_tags(version, interpreter, platforms),
        )
    )
