"""What private copies of served bundles cost: `python -m bench.private_copies`.

Opens 20 models of 8 MiB from the repository's files, as onnxruntime maps them; from copies on disk,
as servers do; and from copies in memory, as servers do whose folder for temporary files is there.
Writes its part of docs/repository.md; `--quick` prints it for a few models instead.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from bench.page import machine, table, write_part
from bench.serving.contenders import ROOT
from foretell.bundle import layout, manifest
from foretell.bundle.private_copy import PrivateCopy
from tests.support.bundles import Spec, write_bundle

_PAGE = ROOT / "docs" / "repository.md"
_MIB = 1024 * 1024
_WEIGHTS_MIB = 8
_IN_MEMORY = "/dev/shm"


def _open_all(models: Path, *, copied: bool) -> None:
    """Open the models in this process; prints MiB of each, and milliseconds of each, as medians."""
    from foretell.service.engine.limits import resident_bytes, return_free_memory
    from foretell.service.engine.runtime import Runtime

    runtime, kept, seconds = Runtime("cpu"), [], []
    before = 0
    for folder in sorted(models.glob("*/1")):
        began = time.perf_counter()
        copy = PrivateCopy(folder, manifest.read(folder).files) if copied else None
        session = runtime.open(folder / layout.FORECAST_GRAPH, copy=copy)
        return_free_memory()
        seconds.append(time.perf_counter() - began)
        kept.append((copy, session))
        # What the first one takes is the libraries', too.
        before = before or resident_bytes()
    held = (resident_bytes() - before) / _MIB / (len(kept) - 1)
    print(held, 1000 * median(seconds))


def measure(models: int) -> str:
    """The part of the page."""
    rows = []
    with tempfile.TemporaryDirectory() as temporary:
        for number in range(models):
            write_bundle(Path(temporary), Spec(name=f"m{number}", ballast=_WEIGHTS_MIB))
        for what, mode, folder in (
            ("mapped from the repository", "mapped", temporary),
            ("copies on disk", "copied", temporary),
            ("copies in memory", "copied", _IN_MEMORY),
        ):
            command = [sys.executable, "-m", "bench.private_copies", "--open", mode, temporary]
            done = subprocess.run(
                command,
                cwd=ROOT,
                env={**os.environ, "TMPDIR": folder},
                stdout=subprocess.PIPE,
                check=True,
                text=True,
            )
            held, took = map(float, done.stdout.split())
            rows.append((what, f"{held:.1f}", f"{took:.0f}"))
    head = ("sessions of", "MiB a model", "median ms to open")
    return (
        f"`python -m bench.private_copies` wrote this: {models} models of {_WEIGHTS_MIB} MiB in "
        "one\nprocess, and what that holds of each.\n\n"
        f"{table(head, rows)}\n{machine('onnxruntime')}\n"
    )


def main() -> None:
    """Measure, and write the part of the page."""
    parser = argparse.ArgumentParser(prog="python -m bench.private_copies", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="with a few models; prints the part")
    parser.add_argument("--open", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.open:
        mode, models = given.open
        _open_all(Path(models), copied=mode == "copied")
        return
    part = measure(3 if given.quick else 20)
    print(part)
    if not given.quick:
        write_part("private-copies", part, _PAGE)


if __name__ == "__main__":
    main()
