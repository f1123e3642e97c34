import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from click.testing import CliRunner, Result

from foretell.commands.train import command
from foretell.data.source import DataSource
from foretell.models.checkpoint import load_info
from foretell.settings.given import assign
from foretell.timeaxis.frequency import Frequency
from tests.foretell.words import named, words

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


@pytest.fixture
def data(tmp_path: Path) -> Path:
    hours = np.arange(240)
    moments = Frequency.parse("h").steps_from(np.datetime64("2024-01-01T00:00"), 240)
    path = tmp_path / "data.csv"
    rows = [
        f"{moment},{np.sin(hour * np.pi / 12):.4f},{hour}"
        for moment, hour in zip(moments.astype("M8[s]"), hours, strict=True)
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


def run(*arguments: str) -> Result:
    return CliRunner().invoke(command, arguments)


def test_trains_from_flags(data: Path, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    result = run(*words(data=data, out=out, **SMALL))
    assert result.exit_code == 0, result.stderr
    for text in ("patchtst", "last value", "seasonal naive", "checkpoint written to"):
        assert text in result.stdout
    assert "epoch 1/1" in result.stderr
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
    result = run(*given, *words(data=data, out=out, **SMALL))
    assert result.exit_code == 0, result.stderr
    found = load_info(out).bounds
    assert {name: (bound.low, bound.high) for name, bound in found.items()} == {
        "count": (0, None),
        "load": (-1, 1.5),
    }


def test_tensorboard_gets_every_epoch(
    data: Path, out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = words(data=data, out=out, tensorboard=tmp_path / "runs", **SMALL)
    with monkeypatch.context() as patch:
        patch.delitem(sys.modules, "torch.utils.tensorboard", raising=False)
        patch.delattr("torch.utils.tensorboard", raising=False)
        patch.setitem(sys.modules, "tensorboard", None)
        result = run(*arguments)
        assert isinstance(result.exception, ImportError)
        assert result.exception.name == "tensorboard"
        assert not out.with_name("model.partial").exists()
    result = run(*arguments)
    assert result.exit_code == 0, result.stderr
    assert [entry.name[:20] for entry in (tmp_path / "runs").iterdir()] == ["events.out.tfevents."]
    assert "better" in result.stdout.splitlines()[-2]


def test_flags_win_over_the_file(data: Path, out: Path, tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    settings = {"data": str(data), "seed": 5, "channels": ["load"]}
    file.write_text(as_yaml(**SMALL, **settings))
    result = run(f"--config={file}", *words(out=out, seed=7, d_model=16, frequency="H"))
    assert result.exit_code == 0, result.stderr
    info = load_info(out)
    assert info.config.d_model == 16
    assert info.channels == ("load",)
    assert info.training is not None
    assert info.training.seed == 7


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"context": None}, "context is missing; give --context, or set it in --config"),
        ({"batch_size": 0}, "batch_size: .*got 0"),
        ({"arch": "oracle"}, "arch: .*got 'oracle'"),
        ({"splits": "0.5,0.5"}, "splits: expected ett-hourly, ett-minute or three fractions"),
        ({"frequency": "often"}, "frequency: expected a frequency"),
        ({"frequency": "D"}, r"data\.csv: lines 3, .*, column 'date'"),
        ({"channels": "load,loud"}, r"data\.csv: line 1: no column 'loud'; did you mean 'load'"),
        ({"bounds": "load"}, "bounds: expected CHANNEL=LOW:HIGH, .*got 'load'"),
        ({"bounds": "load=1:0"}, "bounds: the low bound 1 is not below"),
        ({"bounds": "laod=0:"}, "bounds: no channel 'laod' is forecast; did you mean 'load'"),
        ({"bounds": "count=:200"}, r"data\.csv: channel 'count': 39 of 240 rows are above"),
        ({"time_column": "when"}, "no column 'when'"),
        ({"time_zone": "Mars"}, "time_zone: expected a time zone of the IANA database"),
        ({"data": "nowhere.csv"}, r"nowhere\.csv: No such file"),
        ({"attention": "{mechanism: autocorrelation, factor: .inf}"}, "factor: .*finite"),
        ({"attention": "{mechanism: softmax, factor: 2}"}, "factor: Extra inputs"),
        ({"attention": "softmax,oracle"}, "attention: .*expected one of .*, got 'oracle'"),
        ({"attention": "softmax,softmax"}, "attention: expected one mechanism for all or 1"),
        ({"attention": "softmax:2,linear"}, "attention: expected heads after a colon in 'linear'"),
        ({"arch": "dlinear", "attention": "softmax"}, "d_model: dlinear has no such setting"),
        ({"heads": 3}, "heads: 3 heads do not divide d_model 8"),
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
    result = run(*words(**given))
    assert result.exit_code == 2
    assert result.stdout == ""
    assert re.search(rf"^foretell train: .*{message}", result.stderr)
    assert sorted(entry.name for entry in data.parent.iterdir()) == ["data.csv"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("context: [\n", r"settings\.yaml: not YAML: while parsing"),
        ("context: 1\ncontext: 2\n", "context is given twice"),
        ("just text\n", "expected settings as 'name: value'"),
        ("", "expected settings as 'name: value'"),
        ("batch-size: 0\n", "data is missing"),
    ],
)
def test_a_bad_file_is_refused(tmp_path: Path, content: str, message: str) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text(content)
    result = run(f"--config={file}")
    assert result.exit_code == 2
    assert re.search(message, result.stderr.strip())


def test_an_existing_checkpoint_is_replaced_only_when_asked(data: Path, out: Path) -> None:
    arguments = words(data=data, out=out, **SMALL)
    assert run(*arguments).exit_code == 0
    refused = run(*arguments, "--seed=1")
    assert refused.exit_code == 2
    assert f"{out}: exists already; --overwrite replaces it" in refused.stderr
    assert run(*arguments, "--seed=1", "--overwrite").exit_code == 0


def test_an_interruption_tells_how_to_go_on(
    data: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*args: object, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("foretell.training.train.train", interrupted)
    result = run(*words(data=data, out=out, **SMALL))
    assert result.exit_code == 130
    assert "the same command goes on" in result.stderr


def test_help_is_one_screen() -> None:
    text = run("--help").stdout
    assert len(text.splitlines()) < 60
    for heading in ("The data", "The model", "The training", "How the data is read"):
        assert f"{heading}:\n" in text


def test_notes_say_what_was_made_of_the_data(data: Path, out: Path) -> None:
    lines = data.read_text().splitlines()
    data.write_text("\n".join([lines[0], *lines[:0:-1]]))
    result = run(*words(data=data, out=out, **SMALL))
    assert result.exit_code == 0, result.stderr
    assert "note: a series came newest first and was turned round\n" in result.stderr


def test_how_the_data_is_read_comes_from_the_file_too(data: Path, out: Path) -> None:
    lines = data.read_text().splitlines()
    data.write_text("\n".join([*lines[:50], *lines[53:]]))
    file = data.with_name("settings.yaml")
    file.write_text(as_yaml(**SMALL, data=str(data), missing="ffill", channels=["load"]))
    result = run(f"--config={file}", f"--out={out}", "--missing=interpolate")
    assert result.exit_code == 0, result.stderr
    source = DataSource.recorded(load_info(out).data)
    assert source is not None
    assert (source.reading.missing, source.reading.channels) == ("interpolate", ("load",))
    assert source.rows == 240


def test_a_bad_file_is_told_before_torch_is_loaded(tmp_path: Path) -> None:
    code = (
        "import sys; from foretell.commands.train import command\n"
        "try: command(['--data=none.csv', '--arch=patchtst'])\n"
        "except SystemExit as end: sys.exit(end.code + 10 * ('torch' in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == "foretell train: none.csv: No such file or directory\n"


def test_help_imports_no_torch() -> None:
    code = "import sys, foretell.commands.train; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
