"""Other commits of foretell, and environments for them and for other servers; kept in .bench/."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from bench.harness import KEPT, ROOT

_SECONDS = 900
# Weights are from a current checkpoint; the bundle has the format of the exporting commit.
_EXPORT = """
import sys
from pathlib import Path
from foretell.export.write import export_checkpoint
checkpoint, repository, name = sys.argv[1:]
export_checkpoint(Path(checkpoint), Path(repository), name=name)
"""
_SELF = "foretell["


def checkout(commit: str) -> Path:
    """Write the tree of a commit, unless it is there; returns its folder.

    Raises:
        RuntimeError: there is no such commit.
    """
    name = run("git", "-C", ROOT, "rev-parse", "--verify", f"{commit}^{{commit}}").strip()[:12]
    tree, part, archive = (KEPT / f"{name}{ending}" for ending in ("", ".part", ".tar"))
    if not tree.exists():
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        run("git", "-C", ROOT, "archive", "--output", archive, name)
        run("tar", "-x", "-f", archive, "-C", part)
        archive.unlink()
        part.rename(tree)
    return tree


def environment(tree: Path) -> Path:
    """Python with the requirements of a server on a CPU, with the versions that a commit pins."""
    home = f"foretell-{'now' if tree == ROOT else tree.name}"
    return install(home, requirements(tree), tree / "constraints.txt")


def requirements(tree: Path) -> list[str]:
    """The requirements of a server on a CPU at a commit, and its tree."""
    project = tomllib.loads((tree / "pyproject.toml").read_text())["project"]
    extras: dict[str, list[str]] = project["optional-dependencies"]

    def needed(each: Iterable[str]) -> Iterator[str]:
        for requirement in each:
            if requirement.startswith(_SELF):
                yield from needed(extras[requirement.removeprefix(_SELF).removesuffix("]")])
            else:
                yield requirement

    wanted = [f"{_SELF}{extra}]" for extra in ("cpu", "fast") if extra in extras]
    return [*project["dependencies"], *needed(wanted), str(tree)]


def install(
    home: str,
    wanted: Sequence[str],
    constraints: Path | None = None,
    python: str = sys.executable,
) -> Path:
    """Make an environment, unless it is there; returns its Python.

    Raises:
        RuntimeError: pip failed; the message has the end of its output.
    """
    folder = KEPT / home
    own, done = folder / "bin" / "python", folder / ".installed"
    listed = "\n".join(wanted)
    constrained: list[str | Path] = []
    if constraints is not None:
        listed += f"\n{constraints.read_text()}"
        constrained = ["--constraint", constraints]
    if not done.exists() or done.read_text() != listed:
        shutil.rmtree(folder, ignore_errors=True)
        run(python, "-m", "venv", folder)
        run(own, "-m", "pip", "install", "--quiet", *constrained, *wanted)
        done.write_text(listed)
    return own


def export(tree: Path, checkpoint: Path, name: str) -> Path:
    """Export a checkpoint by the code of a commit; returns the repository.

    It runs with the libraries of this environment.
    """
    repository = checkpoint.with_name(f"repository-{tree.name}")
    if not (repository / name).exists():
        # -P: do not import modules of the working directory.
        command = (sys.executable, "-P", "-c", _EXPORT, checkpoint, repository, name)
        run(*command, PYTHONPATH=str(tree))
    return repository


def run(*command: str | Path, **variables: str) -> str:
    """Output of a command.

    Raises:
        RuntimeError: it failed.
    """
    ran = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        env={**os.environ, **variables},
    )
    if ran.returncode:
        raise RuntimeError(f"{command[0]} failed: {ran.stderr.strip()[-300:]}")
    return ran.stdout
