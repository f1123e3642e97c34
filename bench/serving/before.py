"""An earlier version of foretell as a contender: tree, libraries and bundle of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from bench.serving.contenders import CONTENDERS, OURS, ROOT, Contender
from bench.serving.subjects import NAME
from bench.sizes import Size

_SECONDS = 300
# Runs in the earlier tree: weights come from a seed, so its model is ours, in its own format.
_EXPORT = """
import sys
from pathlib import Path
from bench.serving.subjects import SUBJECTS
from bench.sizes import SCALER
from foretell.export.write import export_checkpoint
from foretell.models.checkpoint import CheckpointInfo, save
folder = Path(sys.argv[1])
[size] = [size for size in SUBJECTS if size.name == sys.argv[2]]
names = tuple(f"channel-{index}" for index in range(size.config.channels))
info = CheckpointInfo(config=size.config, channels=names, frequency="h", scaler=SCALER)
save(folder / "checkpoint", size.model(), info)
export_checkpoint(folder / "checkpoint", folder / "repository", name=sys.argv[3])
"""
_SELF = "foretell["


def checkout(commit: str, folder: Path) -> Path:
    """Write the tree of a commit, unless it is there.

    Args:
        commit: Of this repository.
        folder: Takes trees by the hashes of their commits.

    Raises:
        RuntimeError: there is no such commit.
    """
    name = _run("git", "-C", ROOT, "rev-parse", "--verify", f"{commit}^{{commit}}").strip()[:12]
    tree, part, archive = (folder / f"{name}{ending}" for ending in ("", ".part", ".tar"))
    if not tree.exists():
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        _run("git", "-C", ROOT, "archive", "--output", archive, name)
        _run("tar", "-x", "-f", archive, "-C", part)
        archive.unlink()
        part.rename(tree)
    return tree


def requirements(tree: Path) -> tuple[str, ...]:
    """The requirements of a server on a CPU at a commit, and its tree, which holds the version."""
    project = tomllib.loads((tree / "pyproject.toml").read_text())["project"]
    extras: dict[str, list[str]] = project["optional-dependencies"]

    def needed(each: Iterable[str]) -> Iterator[str]:
        for requirement in each:
            if requirement.startswith(_SELF):
                yield from needed(extras[requirement.removeprefix(_SELF).removesuffix("]")])
            else:
                yield requirement

    wanted = [f"foretell[{extra}]" for extra in ("cpu", "fast") if extra in extras]
    return (*project["dependencies"], *needed(wanted), str(tree))


def contenders(commit: str, tree: Path) -> tuple[Contender, ...]:
    """Our contenders at a commit, in an environment of their own with the versions of its pins.

    Args:
        commit: What the report calls them besides; may be empty.
        tree: That of the commit.
    """
    name = f"{OURS} {commit}".strip()
    return tuple(
        replace(
            one,
            name=one.name.replace(OURS, name),
            tree=tree,
            requirements=requirements(tree),
            constraints=tree / "constraints.txt",
            home=f"{OURS}-{'now' if tree == ROOT else tree.name}",
        )
        for one in CONTENDERS
        if one.name.startswith(OURS)
    )


def prepare(tree: Path, size: Size) -> Path:
    """Have an earlier version export the model, unless it has; returns the repository.

    Raises:
        RuntimeError: it can't, or does not know the model.
    """
    slug = "".join(letter if letter.isalnum() else "-" for letter in size.name)
    folder = tree.with_name(f"{tree.name}-bundles") / slug
    if not folder.exists():
        part = folder.with_suffix(".part")
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        run_in(tree, _EXPORT, part, size.name, NAME)
        part.rename(folder)
    return folder / "repository"


def run_in(tree: Path, code: str, *arguments: str | Path) -> None:
    """Run Python with the modules of a tree and the libraries of this environment.

    Raises:
        RuntimeError: it failed.
    """
    # -P: not the modules of the folder that this runs in.
    _run(sys.executable, "-P", "-c", code, *arguments, PYTHONPATH=str(tree))


def _run(*command: str | Path, **environment: str) -> str:
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
    return ran.stdout
