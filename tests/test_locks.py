"""Files of locks/ fit constraints.txt and pyproject.toml; no index of packages is needed."""

from __future__ import annotations

import platform
import re
import sys
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

import pytest
from packaging.markers import Marker
from packaging.requirements import Requirement

from locks.files import Files
from locks.sets import (
    MACHINES,
    PYTHONS,
    TARGETS,
    Lock,
    LockError,
    Target,
    marker,
    read_locks,
    read_pins,
    resolve,
)

LOCKS = read_locks()
REMEDY = "run `make lock`, and commit locks/"
HERE = Target(f"{sys.version_info.major}.{sys.version_info.minor}", platform.machine())
LINE = re.compile(r"^(\S+)==(\S+)(?: ; (.*?))?((?: \\\n    --hash=sha256:[0-9a-f]{64})+)$")


def entries(lock: Lock) -> dict[str, tuple[str, str]]:
    """The version and the marker of each package of a file."""
    lines = re.sub(r"^#.*\n", "", lock.path.read_text(), flags=re.MULTILINE)
    found = [LINE.match(one) for one in re.split(r"(?<!\\)\n", lines) if one]
    assert all(found), f"{lock.path}: {REMEDY}"
    return {one[1]: (one[2], one[3] or "") for one in found if one}


def installed(name: str) -> Iterable[Requirement]:
    """The requirements of a package of this environment; of no other package."""
    try:
        return [Requirement(line) for line in metadata.requires(name) or ()]
    except metadata.PackageNotFoundError:
        return ()


@pytest.fixture(params=LOCKS, ids=lambda lock: lock.name)
def lock(request: pytest.FixtureRequest) -> Lock:
    return request.param


def test_every_file_has_its_set() -> None:
    files = set((Path(__file__).parent.parent / "locks").glob("*.txt"))
    assert files == {lock.path for lock in LOCKS}, REMEDY


def test_versions_are_those_of_constraints(lock: Lock) -> None:
    pins = read_pins()
    found = {name: version for name, (version, _) in entries(lock).items()}
    assert found == {name: pins.get(name) for name in found}, REMEDY


def test_every_pin_is_locked() -> None:
    locked = {name for lock in LOCKS for name in entries(lock)}
    assert locked >= set(read_pins()), f"pins that nothing requires, or: {REMEDY}"


@pytest.mark.skipif(HERE not in TARGETS, reason=f"files of locks/ are not for {HERE}")
def test_packages_are_those_that_pyproject_requires(lock: Lock) -> None:
    pins = read_pins()
    here = HERE.environments()[0]
    found = {
        name
        for name, (_, condition) in entries(lock).items()
        if not condition or Marker(condition).evaluate(here)
    }
    required = resolve(lock, HERE, pins, installed)
    assert required <= found, REMEDY
    if all(map(is_installed, found)):
        assert found == required, REMEDY


def is_installed(name: str) -> bool:
    # A build of torch for CPUs requires less than the one on PyPI.
    return name != "torch" and any(metadata.distributions(name=name))


@pytest.mark.parametrize(
    ("pins", "message"),
    [
        ({"b": "1"}, "add a version of a, which pyproject.toml requires"),
        ({"a": "1"}, "add a version of b, which a requires"),
        ({"a": "1", "b": "3"}, "b==3, but a requires b<3"),
    ],
)
def test_a_version_that_does_not_fit_is_named(pins: dict[str, str], message: str) -> None:
    needs = {"a": [Requirement("b<3")], "b": []}
    with pytest.raises(LockError, match=re.escape(message)):
        resolve(Lock("x", ("a",)), HERE, pins, needs.__getitem__)


def test_extras_and_packages_left_out_or_alone() -> None:
    needs = {
        "a": [Requirement("b"), Requirement('c; extra == "more"'), Requirement('d; extra == "no"')],
        "b": [Requirement("e")],
        "c": [Requirement('f; python_full_version < "3.11.4"')],
        "g": [Requirement("h")],
    }
    pins = dict.fromkeys("abcdefgh", "1")

    def found(python: str, *without: str) -> set[str]:
        given = Lock("x", ("a", "a[More]"), without, ("G; python_version < '3.13'",))
        return resolve(given, Target(python, "x86_64"), pins, lambda name: needs.get(name, []))

    assert found("3.11") == set("abcefg")
    assert found("3.12") == set("abceg")
    assert found("3.12", "B") == set("acg")
    assert found("3.13", "B") == set("ac")


@pytest.mark.parametrize(
    ("pythons", "machines", "expected"),
    [
        (PYTHONS, MACHINES, ""),
        (("3.11",), MACHINES, 'python_version == "3.11"'),
        (PYTHONS, ("aarch64",), 'platform_machine == "aarch64"'),
        (
            ("3.11", "3.12"),
            ("x86_64",),
            '(python_version == "3.11" or python_version == "3.12")'
            ' and platform_machine == "x86_64"',
        ),
    ],
)
def test_marker_is_true_for_its_targets_only(
    pythons: tuple[str, ...], machines: tuple[str, ...], expected: str
) -> None:
    wanted = {Target(python, machine) for python in pythons for machine in machines}
    text = marker(wanted)
    assert text == expected
    for target in TARGETS:
        true = not text or Marker(text).evaluate(target.environments()[0])
        assert true is (target in wanted)


def test_source_is_locked_where_a_target_has_no_wheel() -> None:
    wheels = {
        "a-1-cp312-cp312-manylinux_2_28_x86_64.whl": "1",
        "a-1-cp311-abi3-manylinux2014_x86_64.whl": "2",
        "a-1-cp312-cp312-manylinux_2_40_aarch64.whl": "3",
    }
    files = Files(wheels, {"a-1.tar.gz": "4"})
    assert files.fitting([Target("3.13", "x86_64")]) == ["1", "2", "3"]
    assert files.fitting(TARGETS) == ["1", "2", "3", "4"]
    with pytest.raises(LockError, match=re.escape("no wheel for Python 3.12 on aarch64")):
        Files(wheels, {}).fitting([Target("3.12", "aarch64")])
