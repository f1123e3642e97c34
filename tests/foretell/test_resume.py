"""A training whose process is ended goes on to the weights of one that is left alone."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from foretell.commands.train import command
from foretell.models.checkpoint import CONFIG, WEIGHTS

OPTIONS = [
    "--arch=patchtst",
    *(
        "--context=24",
        "--horizon=4",
        "--set=model.d_model=8",
        "--set=model.heads=2",
        "--set=model.d_ff=8",
        "--set=model.encoder_layers=1",
    ),
    *(
        "--set=model.patch=4",
        "--set=model.stride=4",
        "--set=model.dropout=0.2",
        "--epochs=3",
        "--set=batch_size=16",
        "--device=cpu",
    ),
    *(
        "--set=ema_decay=0.9",
        "--set=schedule=one-cycle",
        "--set=optimizer=adamw",
        "--set=grad_clip=1",
    ),
]
# Says where it is, and stays there.
STAYING = """
import sys, time
from foretell.training import progress

epoch = int(sys.argv.pop(1))

class Staying(progress.ConsoleProgress):
    def stepped(self, step, loss):
        if (self._done + 1, step) == (epoch, 21):
            print("here", flush=True)
            time.sleep(300)

progress.ConsoleProgress = Staying
from foretell.__main__ import main
main()
"""


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """700 hours of two noisy cycles: 29 steps an epoch."""
    random = np.random.default_rng(5)
    hour = np.arange(700)[:, None]
    values = np.sin((hour + np.array([0, 7])) * np.pi / 12) + random.normal(0, 0.3, (700, 2))
    table = pd.DataFrame(values, columns=["load", "wind"])
    table.insert(0, "date", pd.date_range("2024-01-01", periods=700, freq="h"))
    path = tmp_path / "data.csv"
    table.to_csv(path, index=False)
    return path


def end(arguments: list[str], epoch: int, how: signal.Signals) -> tuple[int, str]:
    """Start a training and end it in the middle of an epoch; its exit code and last words."""
    with subprocess.Popen(
        [sys.executable, "-c", STAYING, str(epoch), "train", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "here\n"
        process.send_signal(how)
        _, said = process.communicate(timeout=60)
    return process.returncode, said


@pytest.mark.parametrize(("epoch", "how"), [(1, signal.SIGINT), (2, signal.SIGKILL)])
def test_ends_with_the_same_weights(
    data: Path, tmp_path: Path, epoch: int, how: signal.Signals
) -> None:
    whole, ended = tmp_path / "whole", tmp_path / "ended"
    arguments = [f"--data={data}", *OPTIONS]
    assert CliRunner().invoke(command, [*arguments, f"--out={whole}"]).exit_code == 0
    status, said = end([*arguments, f"--out={ended}"], epoch, how)
    assert status == (130 if how == signal.SIGINT else -signal.SIGKILL)
    assert ("the same command goes on after the last finished epoch" in said) == (status == 130)
    assert not ended.exists()
    result = CliRunner().invoke(command, [*arguments, f"--out={ended}"])
    assert result.exit_code == 0, result.stderr
    assert ("going on after epoch 1 of 3" in result.stderr) == (epoch == 2)
    assert "epoch 3/3" in result.stderr
    for file in (WEIGHTS, CONFIG):
        assert (ended / file).read_bytes() == (whole / file).read_bytes()
    assert not ended.with_name("ended.partial").exists()
