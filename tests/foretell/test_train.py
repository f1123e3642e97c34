import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml

from foretell.commands.train import command
from foretell.data.source import DataSource
from foretell.models.checkpoint import CONFIG, WEIGHTS, load_info
from foretell.settings.given import assign
from foretell.timeaxis.frequency import Frequency
from foretell.training.config import TrainingConfig
from tests.support.command import done, refused, run

SMALL = {
    "arch": "patchtst",
    "context": 24,
    "horizon": 2,
    "d_model": 8,
    "heads": 2,
    "d_ff": 8,
    "encoder_layers": 1,
    "patch": 4,
    "stride": 4,
    "epochs": 1,
}


OPTIONS = {parameter.name for parameter in command.params}


def named(**settings: Any) -> dict[str, Any]:
    """Settings by their full names; those that no training has get the prefix `model.`."""
    known = {*OPTIONS, *TrainingConfig.model_fields}
    return {name if name in known else f"model.{name}": one for name, one in settings.items()}


def words(**settings: Any) -> list[str]:
    """Options of settings: `--context=24`, `--set=model.d_model=8`."""
    return [
        f"--{name.replace('_', '-')}={value}" if name in OPTIONS else f"--set={name}={value}"
        for name, value in named(**settings).items()
    ]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    moments = Frequency.parse("h").steps_from(np.datetime64("2024-01-01T00:00"), 240)
    path = tmp_path / "data.csv"
    rows = [
        f"{moment},{np.sin(hour * np.pi / 12):.4f},{hour}"
        for hour, moment in enumerate(moments.astype("M8[s]"))
    ]
    path.write_text("\n".join(["date,load,count", *rows]) + "\n")
    return path


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "model"


def as_yaml(**settings: object) -> str:
    nested: dict[str, Any] = {}
    for name, value in named(**settings).items():
        assign(nested, name, value)
    return yaml.safe_dump(nested)


def test_trains_from_flags(data: Path, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    lines = data.read_text().splitlines()
    data.write_text("\n".join([lines[0], *lines[:0:-1]]))
    result = done("train", *words(data=data, out=out, **SMALL))
    for text in ("patchtst", "last value", "seasonal naive", "checkpoint written to"):
        assert text in result.stdout
    assert "epoch 1/1" in result.stderr
    assert "note: a series came newest first and was turned round\n" in result.stderr
    info = load_info(out)
    assert info.channels == ("load", "count")
    assert (info.config.context, info.config.horizon, info.config.d_model) == (24, 2, 8)


@pytest.mark.parametrize("in_file", [False, True])
def test_bounds(data: Path, out: Path, tmp_path: Path, *, in_file: bool) -> None:
    given = ["--bounds=count=0:", "--bounds=load=-1:1.5"]
    if in_file:
        file = tmp_path / "settings.yaml"
        file.write_text('bounds: {count: "0:", load: {low: -1, high: 1.5}}\n')
        given = [f"--config={file}"]
    done("train", *given, *words(data=data, out=out, **SMALL))
    found = load_info(out).bounds
    assert {name: (bound.low, bound.high) for name, bound in found.items()} == {
        "count": (0, None),
        "load": (-1, 1.5),
    }


def test_tensorboard_gets_every_epoch(
    data: Path, out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ["train", *words(data=data, out=out, tensorboard=tmp_path / "runs", **SMALL)]
    with monkeypatch.context() as patch:
        patch.delitem(sys.modules, "torch.utils.tensorboard", raising=False)
        patch.delattr("torch.utils.tensorboard", raising=False)
        patch.setitem(sys.modules, "tensorboard", None)
        result = run(*arguments)
        assert isinstance(result.exception, ImportError)
        assert result.exception.name == "tensorboard"
        assert not out.with_name("model.partial").exists()
    result = done(*arguments)
    assert [entry.name[:20] for entry in (tmp_path / "runs").iterdir()] == ["events.out.tfevents."]
    assert "better" in result.stdout.splitlines()[-2]


def test_flags_win_over_the_file(data: Path, out: Path) -> None:
    """Settings of the model, of the training, and of reading the data."""
    lines = data.read_text().splitlines()
    data.write_text("\n".join([*lines[:50], *lines[53:]]))
    file = data.with_name("settings.yaml")
    settings = {"data": str(data), "seed": 5, "channels": ["load"], "missing": "ffill"}
    file.write_text(as_yaml(**SMALL, **settings))
    changed = words(out=out, seed=7, d_model=16, frequency="H", missing="interpolate")
    done("train", f"--config={file}", *changed)
    info = load_info(out)
    assert (info.config.d_model, info.channels) == (16, ("load",))
    assert info.training is not None
    assert info.training.seed == 7
    source = DataSource.recorded(info.data)
    assert source is not None
    assert (source.reading.missing, source.reading.channels) == ("interpolate", ("load",))
    assert source.rows == 240


# Tests of single settings are beside their readers: one or two of each are here.
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"context": None}, "context is missing; give --context, or set it in --config"),
        ({"batch_size": 0}, "batch_size: .*got 0"),
        ({"arch": "oracle"}, "arch: .*got 'oracle'"),
        ({"splits": "0.5,0.5"}, "splits: expected ett-hourly, ett-minute or three fractions"),
        ({"frequency": "D"}, r"data\.csv: lines 3, .*, column 'date'"),
        ({"channels": "load,loud"}, r"data\.csv: line 1: no column 'loud'; did you mean 'load'"),
        ({"bounds": "load"}, "bounds: expected CHANNEL=LOW:HIGH, .*got 'load'"),
        ({"bounds": "laod=0:"}, "bounds: no channel 'laod' is forecast; did you mean 'load'"),
        ({"bounds": "count=:200"}, r"data\.csv: channel 'count': 39 of 240 rows are above"),
        ({"time_zone": "Mars"}, "time_zone: expected a time zone of the IANA database"),
        ({"attention": "{mechanism: softmax, factor: 2}"}, "factor: Extra inputs"),
        ({"attention": "softmax,softmax"}, "attention: expected one mechanism for all or 1"),
        ({"attention": "softmax:2,linear"}, "attention: expected heads after a colon in 'linear'"),
        ({"label": 4}, "label: patchtst has no such setting"),
        ({"horizon": 200}, "split: .* hold no window"),
        ({"splits": "ett-hourly"}, "test split: it ends at row 14400"),
    ],
)
def test_bad_input_writes_nothing(
    data: Path, out: Path, change: dict[str, object], message: str
) -> None:
    settings = {"data": data, "out": out} | SMALL | change
    given = {name: value for name, value in settings.items() if value is not None}
    assert re.search(message, refused("train", *words(**given)))
    assert sorted(entry.name for entry in data.parent.iterdir()) == ["data.csv"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("context: [\n", r"settings\.yaml: not YAML: while parsing"),
        ("just text\n", "expected settings as 'name: value'"),
        ("", "expected settings as 'name: value'"),
        ("batch-size: 0\n", "data is missing"),
    ],
)
def test_bad_file_of_settings_is_refused(tmp_path: Path, content: str, message: str) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text(content)
    assert re.search(message, refused("train", f"--config={file}"))


def test_existing_checkpoint_is_replaced_only_with_overwrite(data: Path, out: Path) -> None:
    arguments = ["train", *words(data=data, out=out, **SMALL)]
    done(*arguments)
    assert f"{out}: exists already; --overwrite replaces it" in refused(*arguments, "--seed=1")
    done(*arguments, "--seed=1", "--overwrite")


def test_help_is_one_screen() -> None:
    text = done("train", "--help").stdout
    assert len(text.splitlines()) < 60
    for heading in ("The data", "The model", "The training", "How the data is read"):
        assert f"{heading}:\n" in text


LONGER = SMALL | {
    "horizon": 4,
    "dropout": 0.2,
    "epochs": 3,
    "batch_size": 16,
    "device": "cpu",
    "ema_decay": 0.9,
    "schedule": "one-cycle",
    "optimizer": "adamw",
    "grad_clip": 1,
}
# Prints the epoch, and sleeps in it.
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
def cycles(tmp_path: Path) -> Path:
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
    """Start a training, and send it a signal within an epoch; returns status and output."""
    with subprocess.Popen(
        [sys.executable, "-c", STAYING, str(epoch), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "here\n"
        process.send_signal(how)
        _, output = process.communicate(timeout=60)
    return process.returncode, output


@pytest.mark.parametrize(("epoch", "how"), [(1, signal.SIGINT), (2, signal.SIGKILL)])
def test_ended_training_resumes_to_the_same_weights(
    cycles: Path, tmp_path: Path, epoch: int, how: signal.Signals
) -> None:
    whole, ended = tmp_path / "whole", tmp_path / "ended"
    arguments = ["train", *words(data=cycles, **LONGER)]
    done(*arguments, f"--out={whole}")
    status, output = end([*arguments, f"--out={ended}"], epoch, how)
    assert status == (130 if how == signal.SIGINT else -signal.SIGKILL)
    assert ("the same command resumes after the last finished epoch" in output) == (status == 130)
    assert not ended.exists()
    result = done(*arguments, f"--out={ended}")
    assert ("going on after epoch 1 of 3" in result.stderr) == (epoch == 2)
    assert "epoch 3/3" in result.stderr
    for file in (WEIGHTS, CONFIG):
        assert (ended / file).read_bytes() == (whole / file).read_bytes()
    assert not ended.with_name("ended.partial").exists()
