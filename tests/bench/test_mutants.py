from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from bench.mutants.__main__ import ROOT, Run, draw, measure, read, report
from bench.mutants.mutations import mutations
from bench.mutants.tests_of import Selection

_SOURCE = '''\
"""Words stay."""
_log.info(1)

def add(a: int = 2, *, exact: bool = True) -> int:
    if a < 3 and not exact:
        raise ValueError("0")
    a += 1
    return a - 1
'''
_GIT = ("-c", "user.name=x", "-c", "user.email=x@localhost")


def test_each_kind_of_fault_is_inserted_at_its_place() -> None:
    source = _SOURCE.encode()
    found = {
        (mutation.line, mutation.apply(source).decode().splitlines()[mutation.line - 1].strip())
        for mutation in mutations(source)
    }
    assert found == {
        (4, "def add(a: int = 3, *, exact: bool = True) -> int:"),
        (4, "def add(a: int = 2, *, exact: bool = False) -> int:"),
        (5, "if a <= 3 and not exact:"),
        (5, "if a < 4 and not exact:"),
        (5, "if a < 3 or not exact:"),
        (5, "if a < 3 and exact:"),
        (6, "pass"),
        (7, "pass"),
        (7, "a += 2"),
        (8, "return a + 1"),
        (8, "return a - 2"),
    }


def test_faults_after_letters_of_two_bytes_are_in_their_place() -> None:
    [mutation] = mutations('x = "ä" == y\n'.encode())
    assert mutation.apply('x = "ä" == y\n'.encode()).decode() == 'x = "ä" != y\n'


def test_a_seed_draws_the_same_faults_in_proportion_to_lines() -> None:
    drawn = draw(ROOT, 40, seed=3)
    assert drawn == draw(ROOT, 40, seed=3)
    assert len(drawn) == 40
    counts = {
        name: sum(one.path.startswith(f"{name}/") for one in drawn)
        for name in ("bundle", "service")
    }
    assert 0 < counts["bundle"] < counts["service"]
    assert drawn != draw(ROOT, 40, seed=4)


def test_tests_of_a_file_begin_with_its_namesakes() -> None:
    groups = Selection(ROOT).could_see("foretell/timeaxis/zones.py")
    assert groups[0] == ["tests/timeaxis/test_zones.py"]
    tests = [test for group in groups for test in group]
    assert "tests/data/test_reading.py" in tests
    assert len(tests) == len(set(tests))


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with one function of two lines, of which one is tested."""
    root = tmp_path / "repository"
    for package in ("bundle", "models", "export", "service", "foretell", "tests/bundle"):
        (root / package).mkdir(parents=True)
        (root / package / "__init__.py").touch()
    (root / "tests" / "__init__.py").touch()
    for package in ("bundle", "models", "export", "service"):
        (root / "foretell" / package).symlink_to(f"../{package}")
    (root / "bundle" / "limits.py").write_text(
        "def fits(x):\n    return x < y\n\ndef other(x):\n    return x == y\n\ny = None\n"
    )
    (root / "tests" / "bundle" / "test_limits.py").write_text(
        "from foretell.bundle import limits\n\n"
        "def test_fits():\n    limits.y = 3\n    assert not limits.fits(3)\n"
    )
    for command in (["init", "-q"], ["add", "."], [*_GIT, "commit", "-qm", "all"]):
        subprocess.run(["git", *command], cwd=root, check=True)
    return root


def test_found_and_surviving_faults_are_recorded_once(repository: Path, tmp_path: Path) -> None:
    run = Run("HEAD", 5, 0, 100, repository, tmp_path / "results.jsonl")
    measure(run, jobs=1)
    lines = read(run.results)
    assert {line["line"]: line["killed_by"] for line in lines} == {
        2: "tests/bundle/test_limits.py::test_fits",
        5: None,
    }
    assert not any("unsure" in line for line in lines)
    measure(run, jobs=1)
    assert read(run.results) == lines
    # The checkouts are removed.
    left = subprocess.run(
        ["git", "worktree", "list"], cwd=repository, capture_output=True, text=True, check=True
    )
    assert len(left.stdout.splitlines()) == 1


def test_report_gives_the_share_by_package_with_its_error(tmp_path: Path) -> None:
    line = {"commit": "abc", "seed": 1, "path": "bundle/a.py", "line": 1}
    killed = json.loads(json.dumps(line | {"killed_by": "test"}))
    lines = [killed, killed, killed, line | {"killed_by": None, "harmless": "it only logs"}]
    lines.append(line | {"killed_by": "test", "unsure": "fails anyway"})
    assert "| abc, seed 1 | bundle | 3 of 4 | 75.0% | 43.3% | 1 |" in report(lines)
