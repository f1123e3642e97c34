"""Measures the tests: `python -m bench.mutants` (`make mutants`); hours; goes on where it stopped.

Draws single faults in the product by a seed, from each package in proportion to its lines. Puts
each into a copy of a commit and runs the tests that could see it, the nearest first, until one
fails. `results.jsonl` gets a line for each fault; `--report` prints the shares that were found. A
line of a fault that survived may be given a `harmless` member by hand: the reason why no user can
notice it.
"""

from __future__ import annotations

import argparse
import ast
import json
import math
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from queue import SimpleQueue

from bench.mutants.mutations import Mutation, changed_lines, mutations
from bench.mutants.tests_of import Selection

ROOT = Path(__file__).resolve().parent.parent.parent
RESULTS = Path(__file__).parent / "results.jsonl"
PACKAGES = ("bundle", "models", "export", "service", "foretell")
_TEST_SECONDS = 300


@dataclass(frozen=True)
class Drawn:
    """A fault that was drawn.

    Attributes:
        path: The file, from the root.
        mutation: The change of the file.
    """

    path: str
    mutation: Mutation


def draw(root: Path, count: int, seed: int) -> list[Drawn]:
    """Draws faults from each package in proportion to its lines of Python.

    Args:
        root: The checkout.
        count: Number of faults.
        seed: A seed draws the same faults of a checkout each time.
    """
    rng = random.Random(seed)
    files = {package: sorted(_files(root, package)) for package in PACKAGES}
    lines = {package: sum(map(_count_lines, paths)) for package, paths in files.items()}
    drawn = []
    for package, share in _shares(lines, count).items():
        all_of = [
            Drawn(str(path.relative_to(root)), mutation)
            for path in files[package]
            for mutation in mutations(path.read_bytes())
        ]
        rng.shuffle(all_of)
        drawn += islice((one for one in all_of if _is_python(root, one)), share)
    # The first ones are a fair sample too, if a run is ended early.
    rng.shuffle(drawn)
    return drawn


def _is_python(root: Path, drawn: Drawn) -> bool:
    try:
        ast.parse(drawn.mutation.apply((root / drawn.path).read_bytes()))
    except SyntaxError:
        return False
    return True


def _files(root: Path, package: str) -> Iterator[Path]:
    # `os.walk` does not follow links to folders, such as those from `foretell` to its packages.
    for folder, _, names in os.walk(root / package):
        yield from (Path(folder) / name for name in names if name.endswith(".py"))


def _count_lines(path: Path) -> int:
    return path.read_bytes().count(b"\n")


def _shares(lines: dict[str, int], count: int) -> dict[str, int]:
    """Whole numbers in proportion to `lines` that add up to `count` (largest remainders)."""
    exact = {package: count * n / sum(lines.values()) for package, n in lines.items()}
    shares = {package: math.floor(share) for package, share in exact.items()}
    by_remainder = sorted(exact, key=lambda package: shares[package] - exact[package])
    for package in by_remainder[: count - sum(shares.values())]:
        shares[package] += 1
    return shares


class Sandbox:
    """A checkout of a commit in a temporary folder, in which faults are tried.

    Args:
        repository: The repository that has the commit.
        commit: The commit.
    """

    def __init__(self, repository: Path, commit: str) -> None:
        self._repository = repository
        self._folder = Path(tempfile.mkdtemp(prefix="mutants-"))
        self.root = self._folder / "checkout"
        _git(repository, "worktree", "add", "--quiet", "--detach", str(self.root), commit)
        # Reference data, if any, are in a folder beside the repository.
        (self._folder / "shared").symlink_to(repository.parent / "shared")

    def close(self) -> None:
        """Removes the checkout."""
        _git(self._repository, "worktree", "remove", "--force", str(self.root))
        shutil.rmtree(self._folder)

    def try_one(self, drawn: Drawn, limit: float) -> dict[str, object]:
        """Puts a fault in, runs tests until one fails, and takes the fault out.

        Args:
            drawn: The fault.
            limit: Seconds after which no further tests are begun.

        Returns:
            The members of the line in the results.
        """
        path = self.root / drawn.path
        source = path.read_bytes()
        before, after = changed_lines(source, drawn.mutation)
        begun = time.monotonic()
        killed_by = None
        ran = 0
        _write(path, drawn.mutation.apply(source))
        try:
            for group in Selection(self.root).could_see(drawn.path):
                left = limit - (time.monotonic() - begun)
                if killed_by is None and left > 0:
                    killed_by = self.failing_test(group, left)
                    ran += len(group)
        finally:
            _write(path, source)
        return {
            "path": drawn.path,
            **asdict(drawn.mutation),
            "before": before,
            "after": after,
            "killed_by": killed_by,
            "files": ran,
            "seconds": round(time.monotonic() - begun, 1),
        }

    def failing_test(self, tests: list[str], seconds: float) -> str | None:
        """The first test that fails; None if all passed, or if none failed within the time."""
        options = ["-x", "-q", "-p", "no:cacheprovider", f"--timeout={_TEST_SECONDS}", "-rfE"]
        environment = os.environ | {"PYTHONPATH": str(self.root)}
        with tempfile.TemporaryDirectory() as temporary:
            try:
                done = subprocess.run(
                    [sys.executable, "-m", "pytest", *options, f"--basetemp={temporary}/t", *tests],
                    cwd=self.root,
                    env=environment,
                    capture_output=True,
                    text=True,
                    timeout=seconds,
                    stdin=subprocess.DEVNULL,
                )
            except subprocess.TimeoutExpired:
                return None
        if done.returncode in (0, 5):
            return None
        found = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
        return found[0].split()[1] if found else f"pytest ended with {done.returncode}"


@dataclass(frozen=True)
class Run:
    """The arguments of a measurement.

    Attributes:
        commit: The commit whose tests are measured.
        count: Number of faults that are drawn.
        seed: The seed of the draw.
        limit: Seconds for each fault.
        repository: The repository that has the commit.
        results: The file that the results are added to.
    """

    commit: str
    count: int
    seed: int
    limit: float
    repository: Path = ROOT
    results: Path = RESULTS


def measure(run: Run, jobs: int) -> None:
    """Tries the faults that the results do not hold yet, some at a time.

    A test that kills is run once more without any fault: if it fails then too it proves nothing,
    and the line is marked as `unsure`.
    """
    commit = _git(run.repository, "rev-parse", "--short=10", run.commit)
    done = {_key(line) for line in read(run.results) if _is_of(line, commit, run.seed)}
    sandboxes: SimpleQueue[Sandbox] = SimpleQueue()
    every = [Sandbox(run.repository, commit) for _ in range(jobs)]
    for sandbox in every:
        sandboxes.put(sandbox)

    def try_next(drawn: Drawn) -> dict[str, object]:
        sandbox = sandboxes.get()
        try:
            line = {"commit": commit, "seed": run.seed, **sandbox.try_one(drawn, run.limit)}
            test = str(line["killed_by"])
            if "::" in test and sandbox.failing_test([test.partition("[")[0]], run.limit):
                line["unsure"] = "the test fails without the fault, too"
            return line
        finally:
            sandboxes.put(sandbox)

    try:
        drawn = draw(every[0].root, run.count, run.seed)
        left = [
            one for one in drawn if (one.path, one.mutation.start, one.mutation.text) not in done
        ]
        with ThreadPoolExecutor(jobs) as pool, run.results.open("a") as file:
            for line in pool.map(try_next, left):
                file.write(json.dumps(line) + "\n")
                file.flush()
                print("found   " if line["killed_by"] else "SURVIVED", line["path"], line["line"])
    finally:
        for sandbox in every:
            sandbox.close()


def read(results: Path = RESULTS) -> list[dict[str, object]]:
    """The lines of the results."""
    return (
        [json.loads(line) for line in results.read_text().splitlines()] if results.exists() else []
    )


def _is_of(line: dict[str, object], commit: str, seed: int) -> bool:
    return line["commit"] == commit and line["seed"] == seed


def report(lines: Iterable[dict[str, object]]) -> str:
    """A table of the shares of faults that were found, by commit, seed and package."""
    groups: dict[tuple[str, str], list[dict[str, object]]] = {}
    for line in lines:
        run = f"{line['commit']}, seed {line['seed']}"
        for package in (str(line["path"]).split("/")[0], "all"):
            groups.setdefault((run, package), []).append(line)
    rows = [
        "| run | package | found | share | two standard errors | harmless |",
        "|---|---|---|---|---|---|",
    ]
    for (run, package), group in sorted(groups.items()):
        sure = [line for line in group if "unsure" not in line]
        found = sum(line["killed_by"] is not None for line in sure)
        share = found / len(sure) if sure else math.nan
        error = 2 * math.sqrt(share * (1 - share) / len(sure)) if sure else math.nan
        harmless = sum("harmless" in line for line in sure)
        cells = (run, package, f"{found} of {len(sure)}", f"{share:.1%}", f"{error:.1%}", harmless)
        rows.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(rows)


def _key(line: dict[str, object]) -> tuple[object, object, object]:
    return line["path"], line["start"], line["text"]


def _write(path: Path, source: bytes) -> None:
    path.write_bytes(source)
    # Python compares whole seconds and sizes, which may be those of the file before.
    for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
        compiled.unlink()


def _git(repository: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", *arguments], cwd=repository, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


def main() -> None:
    """Measures, unless only the report is wanted, and prints the report."""
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m bench.mutants")
    parser.add_argument("--commit", default="HEAD", help="the commit whose tests are measured")
    parser.add_argument("--count", type=int, default=200, help="faults that are drawn")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--limit", type=float, default=900, help="seconds for each fault")
    parser.add_argument("--report", action="store_true", help="only print the report")
    arguments = parser.parse_args()
    if not arguments.report:
        run = Run(arguments.commit, arguments.count, arguments.seed, arguments.limit)
        measure(run, arguments.jobs)
    print(report(read()))


if __name__ == "__main__":
    main()
