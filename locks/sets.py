"""Sets of packages, which pyproject.toml names, with the versions of constraints.txt."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "locks"
PROJECT = "foretell"
# Requirements of a package, by its canonical name.
Requirements = Callable[[str], Iterable[Requirement]]


class LockError(Exception):
    """constraints.txt and pyproject.toml do not fit the packages that they name."""


@dataclass(frozen=True)
class Lock:
    """A file of locks/.

    Attributes:
        name: Name of the file, without its ending.
        requires: Requirements that the file fulfils, with all that they require.
        without: Packages that are left out, with all that only they require.
        alone: Requirements that are installed without those of their own.
    """

    name: str
    requires: tuple[str, ...]
    without: tuple[str, ...] = ()
    alone: tuple[str, ...] = ()

    @property
    def path(self) -> Path:
        """The file."""
        return FOLDER / f"{self.name}.txt"


@dataclass(frozen=True)
class Target:
    """A Python on a kind of processor; the operating system is Linux."""

    python: str
    machine: str

    def __str__(self) -> str:
        return f"Python {self.python} on {self.machine}"

    def environments(self) -> list[dict[str, str]]:
        """Values of markers, for the first release of that Python and for a late one."""
        return [
            {
                "implementation_name": "cpython",
                "implementation_version": full,
                "os_name": "posix",
                "platform_machine": self.machine,
                "platform_python_implementation": "CPython",
                "platform_system": "Linux",
                "python_full_version": full,
                "python_version": self.python,
                "sys_platform": "linux",
            }
            for full in (f"{self.python}.0", f"{self.python}.99")
        ]


PYTHONS = ("3.11", "3.12", "3.13", "3.14")
MACHINES = ("x86_64", "aarch64")
TARGETS = tuple(Target(python, machine) for python in PYTHONS for machine in MACHINES)


def read_locks() -> list[Lock]:
    """The sets of pyproject.toml."""
    tables = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["locks"]
    return [
        Lock(name, **{key: tuple(lines) for key, lines in table.items()})
        for name, table in tables.items()
    ]


def read_pins() -> dict[str, str]:
    """The version of each package in constraints.txt, by its canonical name."""
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pairs = (line.split("==") for line in lines if "==" in line)
    return {canonicalize_name(name): version for name, version in pairs}


def requirements_of_project() -> list[Requirement]:
    """The requirements of foretell, those of its extras with a marker."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    found = [Requirement(line) for line in project["dependencies"]]
    for extra, lines in project["optional-dependencies"].items():
        for one in map(Requirement, lines):
            wanted = f'extra == "{extra}"'
            one.marker = Marker(f"({one.marker}) and {wanted}" if one.marker else wanted)
            found.append(one)
    return found


def resolve(
    lock: Lock, target: Target, pins: dict[str, str], requirements: Requirements
) -> set[str]:
    """The canonical names of the packages of a lock.

    Args:
        lock: The set of packages.
        target: Where they are installed.
        pins: The version of each package.
        requirements: Requirements of a package other than foretell.

    Raises:
        LockError: a version is missing, or is refused by another package.
    """
    own = requirements_of_project()
    without = set(map(canonicalize_name, lock.without))
    environments = target.environments()
    seen: set[tuple[str, str]] = set()
    waiting = [(Requirement(line), "pyproject.toml") for line in lock.requires]
    while waiting:
        requirement, by = waiting.pop()
        name = canonicalize_name(requirement.name)
        if name in without:
            continue
        if name != PROJECT:
            _check(name, requirement, by, pins)
        for extra in {"", *requirement.extras} - {extra for other, extra in seen if other == name}:
            seen.add((name, extra))
            waiting += [
                (one, name)
                for one in (own if name == PROJECT else requirements(name))
                if _applies(one, environments, extra)
            ]
    found = {name for name, _ in seen} - {PROJECT}
    for requirement in map(Requirement, lock.alone):
        if _applies(requirement, environments):
            name = canonicalize_name(requirement.name)
            _check(name, requirement, "pyproject.toml", pins)
            found.add(name)
    return found


def _applies(requirement: Requirement, environments: list[dict[str, str]], extra: str = "") -> bool:
    """Whether the marker of a requirement is true in one of these environments."""
    marker = requirement.marker
    return marker is None or any(marker.evaluate({**one, "extra": extra}) for one in environments)


def _check(name: str, requirement: Requirement, by: str, pins: dict[str, str]) -> None:
    if name not in pins:
        raise LockError(f"constraints.txt: add a version of {name}, which {by} requires")
    if not requirement.specifier.contains(pins[name], prereleases=True):
        raise LockError(f"constraints.txt: {name}=={pins[name]}, but {by} requires {requirement}")


def marker(targets: Iterable[Target]) -> str:
    """A marker that is true for these targets among all; empty if it is for every one."""
    wanted = set(targets)
    pythons = [one for one in PYTHONS if any(each.python == one for each in wanted)]
    machines = [one for one in MACHINES if any(each.machine == one for each in wanted)]
    if wanted != {Target(python, machine) for python in pythons for machine in machines}:
        raise LockError(f"no short marker for {sorted(map(str, wanted))}")
    parts = []
    if len(pythons) < len(PYTHONS):
        parts.append(" or ".join(f'python_version == "{python}"' for python in pythons))
    if len(machines) < len(MACHINES):
        parts.append(f'platform_machine == "{machines[0]}"')
    return " and ".join(
        f"({part})" if len(parts) > 1 and " or " in part else part for part in parts
    )
