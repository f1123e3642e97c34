"""Installs a built wheel on clean Pythons: `make wheels`.

For each Python it makes three environments: for training, for a server and for a client. The first
trains and exports a small model, the second serves the bundle, and the third forecasts with it.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from urllib.request import urlopen

ROOT = Path(__file__).resolve().parent.parent
# Environments with the extras of each.
EXTRAS = {"client": "", "server": "[cpu]", "training": "[cpu,train]"}
CONTEXT, HORIZON = 24, 4
TRAIN = (
    *("--arch", "patchtst", "--context", str(CONTEXT), "--horizon", str(HORIZON), "--epochs", "1"),
    *("--set", "model.d_model=8", "--device", "cpu", "--frequency", "h"),
)
# The client builds a request from a table, and reads the answer.
ASK = """
import sys
import pandas as pd
from foretell import Client
table = pd.read_csv(sys.argv[1], parse_dates=["time"])
with Client(sys.argv[2]) as client:
    print(len(client.forecast(table.tail(int(sys.argv[3])))))
"""


def run(*command: str | Path, folder: Path, seconds: float) -> str:
    """Output of a command.

    Raises:
        SystemExit: it failed, or took too long.
    """
    # No module of this checkout must be found.
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env=variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        sys.exit(f"{' '.join(map(str, command))}: more than {seconds:.0f} seconds")
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}:\n{done.stdout[-2000:]}")
    return done.stdout


@contextmanager
def serving(home: Path, folder: Path, seconds: float) -> Iterator[str]:
    """A server of the bundles in `models`; yields its address once `/healthz` answers.

    Raises:
        SystemExit: it did not start in time.
    """
    log = folder / "server.log"
    command = (home / "bin" / "foretell", "serve", "--models", "models", "--port", "0")
    with log.open("w") as file:
        process = subprocess.Popen(command, cwd=folder, stdout=file, stderr=subprocess.STDOUT)
    try:
        until = time.monotonic() + seconds
        while not (found := re.search(r"http://\S+:[1-9]\d*", log.read_text())):
            if process.poll() is not None or time.monotonic() > until:
                sys.exit(f"foretell serve:\n{log.read_text()[-2000:]}")
            time.sleep(0.2)
        with urlopen(f"{found[0]}/healthz", timeout=seconds) as answer:
            assert answer.status == 200
        yield found[0]
        process.send_signal(signal.SIGTERM)
        assert process.wait(seconds) == 0
    finally:
        process.kill()


def check(python: str, wheel: Path, folder: Path, seconds: float) -> dict[str, str]:
    """Install and use the wheel; returns versions.

    Args:
        python: An interpreter.
        wheel: A wheel of foretell.
        folder: An empty folder, for environments and files.
        seconds: The longest time of one command.

    Raises:
        SystemExit: a step failed.
    """
    homes = {name: folder / name for name in EXTRAS}
    for name, extras in EXTRAS.items():
        run(python, "-m", "venv", homes[name], folder=folder, seconds=seconds)
        pip = (homes[name] / "bin" / "python", "-m", "pip")
        options = ("--quiet", "--no-compile", "--constraint", ROOT / "constraints.txt")
        run(*pip, "install", *options, f"{wheel}{extras}", folder=folder, seconds=seconds)
        run(*pip, "check", folder=folder, seconds=seconds)
    start = datetime(2024, 1, 1)
    rows = [f"{start + timedelta(hours=hour)},{math.sin(hour / 4):.3f}" for hour in range(300)]
    (folder / "load.csv").write_text("\n".join(["time,load", *rows, ""]))
    foretell = homes["training"] / "bin" / "foretell"
    command = (foretell, "train", "--data", "load.csv", *TRAIN, "--out", "load")
    run(*command, folder=folder, seconds=seconds)
    run(foretell, "export", "load", "--force", "--out", "models", folder=folder, seconds=seconds)
    with serving(homes["server"], folder, seconds) as url:
        command = (homes["client"] / "bin" / "python", "-c", ASK, "load.csv", url, str(CONTEXT))
        steps = run(*command, folder=folder, seconds=seconds).split()[-1]
        assert steps == str(HORIZON), steps
    programs = {
        "client": "import platform; print(platform.python_version())",
        "server": "import onnxruntime; print(onnxruntime.__version__)",
        "training": "import torch; print(torch.__version__)",
    }
    return {
        name: run(
            homes[name] / "bin" / "python", "-c", code, folder=folder, seconds=seconds
        ).strip()
        for name, code in programs.items()
    }


def main() -> None:
    """Check the wheel with each Python of the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("wheel", type=Path)
    parser.add_argument("pythons", nargs="+", help="interpreters, such as python3.12")
    parser.add_argument("--seconds", type=float, default=1800, help="longest time of one step")
    given = parser.parse_args()
    for python in given.pythons:
        with tempfile.TemporaryDirectory() as folder:
            found = check(python, given.wheel.resolve(), Path(folder), given.seconds)
        sys.stdout.write(f"{python}: {json.dumps(found)}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
