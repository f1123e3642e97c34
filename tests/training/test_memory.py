"""Memory grows with rows and not with windows."""

import subprocess
import sys

# In a process of its own, whose peak is that of the training alone.
_PROGRAM = """
import resource, sys, tempfile
from pathlib import Path

import numpy as np
import torch

from foretell.timeaxis.frequency import Frequency
from foretell.data.panel import Panel
from foretell.data.table import Table
from foretell.training.config import TrainingConfig
from foretell.training.train import train

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

def panel(series, rows):
    random, hour = np.random.default_rng(0), Frequency.parse("h")
    times = hour.steps_from(np.datetime64("2024-01-01"), rows)
    return Panel(tuple(
        Table(times, random.normal(size=(rows, 1)), ("y",), hour, series=str(name))
        for name in range(series)
    ))

settings = TrainingConfig(
    arch="dlinear", context=168, horizon=24, epochs=1, batch_size=1024, device="cpu"
)
torch.set_num_threads(1)
with tempfile.TemporaryDirectory() as folder:
    train(settings, panel(3, 1000), Path(folder) / "few")
    before = peak()
    info = train(settings, panel(300, 800), Path(folder) / "many").info
print(peak() - before, info.test.windows)
"""


def test_many_series_take_the_memory_of_their_rows() -> None:
    found = subprocess.run([sys.executable, "-c", _PROGRAM], check=True, capture_output=True)
    grown, windows = found.stdout.split()
    assert int(windows) == 300 * 137
    # The training windows alone would take 81 MiB, the rows are 1.8 MiB as they come.
    assert float(grown) < 40
