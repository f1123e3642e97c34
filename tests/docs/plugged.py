"""Plugs in a file from a page, in a process of its own, so that other tests do not see it."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from tests.docs.pages import blocks
from tests.support.process import ROOT, Server

CONTEXT, HORIZON = 24, 6
# As if the file were in the repository, where other tests would find it.
_PROGRAM = """\
import json, sys
from importlib import import_module
import torch
from click.testing import CliRunner
from foretell.__main__ import cli
from tests.tracing import trace_cheaply
trace_cheaply()
import_module(sys.argv[1]).__path__.append(sys.argv[2])
torch.set_num_threads(1)
for words in json.loads(sys.argv[3]):
    done = CliRunner().invoke(cli, words, catch_exceptions=False)
    assert done.exit_code == 0, done.output
"""
_HOURS = np.arange(240)
VALUES = np.stack([np.sin(_HOURS * np.pi / 12), np.cos(_HOURS * np.pi / 12) + _HOURS % 5], axis=1)


def write_example(page: Path, folder: Path, name: str) -> Path:
    """Write the only file that a page shows into a folder of its own.

    Args:
        page: The page.
        folder: Where the new folder is made.
        name: Name of the file.
    """
    (block,) = (block for block in blocks(page) if block.language == "python" and not block.reason)
    plugged = folder / "plugged"
    plugged.mkdir()
    (plugged / name).write_text(block.text)
    return plugged


def bundles_with(package: str, plugged: Path, models: Mapping[str, list[str]]) -> Path:
    """Train, export and verify small models by the command line.

    Args:
        package: Package in which the files of `plugged` are imported.
        plugged: A folder; results are written beside it.
        models: Flags of `foretell train`, by the models' names.

    Returns:
        The repository.
    """
    folder = plugged.parent
    data, repository = folder / "data.csv", folder / "models"
    times = np.datetime64("2024-01-01T00") + _HOURS
    with data.open("w", newline="") as file:
        csv.writer(file).writerows([["date", "load", "price"], *zip(times, *VALUES.T, strict=True)])
    sizes = [f"--context={CONTEXT}", f"--horizon={HORIZON}", "--epochs=1"]
    commands: list[list[object]] = []
    for name, flags in models.items():
        checkpoint = folder / name
        commands += [
            ["train", f"--data={data}", f"--out={checkpoint}", *sizes, *flags],
            # One epoch makes no model worth serving.
            ["export", checkpoint, "--out", repository, "--force"],
        ]
    # Every export verifies; one bundle shows that `verify` works later too.
    commands.append(["verify", repository / name / "1", "--checkpoint", checkpoint])
    arguments = (package, plugged, json.dumps(commands, default=str))
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", _PROGRAM, *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, f"{done.stdout[-4000:]}{done.stderr[-4000:]}"
    return repository


def ask(server: Server, name: str, **options: object) -> dict[str, Any]:
    """A forecast from the end of the data."""
    series = {
        "series": VALUES[-CONTEXT:].tolist(),
        "frequency": "h",
        "start_timestamp": "2024-01-10T00:00:00",
    }
    body = {"model": name, "inputs": [series], "options": options}
    answer = httpx.post(f"{server.url}/forecast", json=body, timeout=60)
    assert answer.status_code == 200, answer.text
    (content,) = answer.json()["outputs"][0]["content"]
    return content
