"""An earlier version of foretell as a contender: its own tree and bundle, the same weights."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from bench.serving.contenders import CONTENDERS, OURS, ROOT, Contender
from bench.serving.subjects import NAME
from bench.sizes import Size

_SECONDS = 300
# Runs in the earlier tree: weights come from a seed, so its model is ours, in its own format.
_PREPARE = """
import sys
from pathlib import Path
from bench.serving.subjects import SUBJECTS, prepare
folder = Path(sys.argv[1])
[size] = [size for size in SUBJECTS if size.name == sys.argv[2]]
prepare(size, folder, folder / "repository", sys.argv[3])
"""


def checkout(commit: str, folder: Path) -> Path:
    """Write the tree of a commit.

    Args:
        commit: Of this repository.
        folder: Takes trees by name of the commit.

    Raises:
        RuntimeError: there is no such commit.
    """
    tree = folder / commit
    archive = folder / f"{commit}.tar"
    folder.mkdir(parents=True, exist_ok=True)
    tree.mkdir(exist_ok=True)
    for command in (
        ("git", "-C", ROOT, "archive", "--output", archive, commit),
        ("tar", "-x", "-f", archive, "-C", tree),
    ):
        _run(command)
    archive.unlink()
    return tree


def contenders(commit: str, tree: Path) -> tuple[Contender, ...]:
    """Our contenders, each at that commit."""
    return tuple(
        replace(one, name=one.name.replace(OURS, f"{OURS} {commit}"), tree=tree)
        for one in CONTENDERS
        if one.name.startswith(OURS)
    )


def prepare(tree: Path, size: Size, folder: Path) -> Path:
    """Have an earlier version export the model, unless it has; returns the repository.

    Raises:
        RuntimeError: it can't, or does not know the model.
    """
    repository = folder / "repository"
    if not repository.exists():
        run_in(tree, _PREPARE, folder, size.name, NAME)
    return repository


def run_in(tree: Path, code: str, *arguments: str | Path) -> None:
    """Run Python with the modules of a tree.

    Raises:
        RuntimeError: it failed.
    """
    # -P: not the modules of the folder that this runs in.
    _run((sys.executable, "-P", "-c", code, *arguments), PYTHONPATH=str(tree))


def _run(command: tuple[str | Path, ...], **environment: str) -> None:
    ran = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        check=False,
        env={**os.environ, **environment},
    )
    if ran.returncode:
        raise RuntimeError(f"{command[0]} failed: {ran.stderr.strip()[-300:]}")
