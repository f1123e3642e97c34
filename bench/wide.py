"""Peak memory of a model with very many channels: `python -m bench.wide`.

Trains, exports and verifies a PatchTST on the command line, each in a process of its own, and
writes its part of docs/benchmarks.md. `--quick` takes few channels and prints the part.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd

from bench.page import PAGE, machine, table, write_part

CHANNELS, QUICK = 862, 8
# As few rows as every split has windows in: memory does not grow with their number.
ROWS, SPLITS = 700, "0.66,0.16,0.18"
MODEL = {
    "arch": "patchtst",
    "context": 336,
    "horizon": 96,
    "d_model": 128,
    "heads": 16,
    "d_ff": 256,
    "encoder_layers": 3,
    "batch_size": 4,
    "epochs": 1,
    "splits": SPLITS,
}
_TEXT = """\
## Many channels

`make bench-wide` wrote this part: the most memory that each command had resident at a time, and how
long it took, for a PatchTST of {channels} channels: context 336, horizon 96, patches of 16 steps
every 8, 128 features, 16 heads, 3 layers, trained for an epoch in batches of 4 windows. One map of
one window has {numbers:.0f} million numbers; float64 for all layers takes {size:.0f} MiB.

{machine}

{rows}
Most of what training takes are activations of a batch, which `--batch-size` decides. All else runs
as many windows at a time as fit (`models/batches.py`).
"""


def peak_of(*arguments: str | Path) -> tuple[float, float]:
    """MiB that a subcommand of foretell had resident at most, and seconds that it took.

    Raises:
        SystemExit: it failed.
    """
    print("foretell", *arguments[:1], flush=True)
    begun = time.monotonic()
    child = subprocess.Popen([sys.executable, "-m", "foretell", *map(str, arguments)])
    # Unlike `child.wait`, it tells what the child used.
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise SystemExit(f"foretell {arguments[0]} ended with {child.returncode}")
    return used.ru_maxrss / 1024, time.monotonic() - begun


def measure(channels: int, folder: Path) -> dict[str, tuple[float, float]]:
    """Peak and seconds of each command."""
    data, checkpoint = folder / "wide.csv", folder / "wide"
    _write_data(data, channels)
    settings = [part for name, value in MODEL.items() for part in (_flag(name), str(value))]
    train = peak_of("train", "--data", data, "--out", checkpoint, *settings)
    export = peak_of("export", checkpoint, "--to", folder / "repository")
    bundle = folder / "repository" / "wide" / "1"
    verify = peak_of("verify", bundle, "--checkpoint", checkpoint)
    return {"train": train, "export": export, "verify": verify}


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _write_data(path: Path, channels: int) -> None:
    """Daily cycles with noise."""
    random = np.random.default_rng(0)
    hour = np.arange(ROWS)[:, None]
    cycle = np.sin(2 * np.pi * (hour / 24 + random.uniform(size=channels)))
    values = 50 + 10 * cycle + random.normal(0, 3, (ROWS, channels))
    columns = {f"c{i}": values[:, i] for i in range(channels)}
    index = pd.date_range("2024-01-01", periods=ROWS, freq="h")
    pd.DataFrame({"date": index} | columns).to_csv(path, index=False, float_format="%.4f")


def _text(channels: int, found: dict[str, tuple[float, float]]) -> str:
    patches = (336 - 16) // 8 + 2
    numbers = channels * 16 * patches**2
    rows = [
        (f"`foretell {name}`", f"{peak:,.0f}", f"{seconds:.0f}")
        for name, (peak, seconds) in found.items()
    ]
    return _TEXT.format(
        channels=channels,
        numbers=numbers / 1e6,
        size=3 * 8 * numbers / 2**20,
        machine=machine("torch", "onnxruntime"),
        rows=table(("command", "MiB", "seconds"), rows),
    )


def main() -> None:
    """Measure, and write or print the part."""
    parser = argparse.ArgumentParser(prog="python -m bench.wide", description=__doc__)
    parser.add_argument("--quick", action="store_true", help=f"{QUICK} channels")
    quick = parser.parse_args().quick
    channels = QUICK if quick else CHANNELS
    with tempfile.TemporaryDirectory() as name:
        text = _text(channels, measure(channels, Path(name)))
    if quick:
        print(text)
    else:
        write_part("wide", text)
        print(f"wrote {PAGE}")


if __name__ == "__main__":
    main()
