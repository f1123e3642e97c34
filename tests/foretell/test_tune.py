from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import optuna
import pandas as pd
import pytest
import yaml
from click.testing import CliRunner, Result

from foretell.commands.train import command as train
from foretell.commands.tune import _tell, command
from foretell.data.reading import read
from foretell.errors import RefusedError
from foretell.models.checkpoint import load_info
from foretell.timeaxis.frequency import Frequency
from foretell.training.preparation import forecaster_config
from foretell.tuning.search import Search
from foretell.tuning.space import Range, read_choices, space_of, training_with
from tests.foretell.words import words

GIVEN: dict[str, Any] = {
    "arch": "patchtst",
    "context": 24,
    "horizon": 2,
    "epochs": 2,
    "batch_size": 32,
    "model": {
        "heads": 2,
        "d_ff": 8,
        "encoder_layers": 1,
        "patch": 4,
        "stride": 4,
        "dropout": 0,
    },
}

RATES = {"learning_rate": Range(1e-4, 1e-2, log=True)}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    hours = np.arange(300)
    frame = pd.DataFrame(
        {
            "date": pd.date_range("2024-01-01", periods=len(hours), freq="h"),
            "load": np.sin(hours * np.pi / 12)
            + np.random.default_rng(0).normal(0, 0.1, len(hours)),
            "7": np.cos(hours * np.pi / 12),
        }
    )
    path = tmp_path / "data.csv"
    frame.to_csv(path, index=False)
    return path


def run(
    *given: object, model: Mapping[str, object] = MappingProxyType({}), **settings: Any
) -> Result:
    return CliRunner().invoke(command, [*map(str, given), *words(**settings, **model)])


def search_of(data: Path, journal: Path, space: dict[str, Any]) -> Search:
    return Search(GIVEN, space, read(data), journal)


def test_ends_with_settings_that_train_takes(data: Path, tmp_path: Path) -> None:
    best = tmp_path / "best.yaml"
    given = ("--minutes=5", "--trainings=2", "--search=model.d_model=8,16", f"--out={best}")
    result = run(*given, data=data, **GIVEN)
    assert result.exit_code == 0, result.stderr
    found = yaml.safe_load(best.read_text())
    assert result.stdout == best.read_text()
    assert found["model"]["d_model"] in (8, 16)
    assert 1e-4 <= found["learning_rate"] <= 2e-2
    assert (found["context"], found["data"]) == (24, str(data))
    assert "training 1: validation" in result.stderr
    assert f"best of 2 trainings: validation MSE {found_error(result):.4f}" in result.stderr
    again = run(*given, data=data, **GIVEN)
    assert again.exit_code == 0, again.stderr
    assert "going on after 2 trainings" in again.stderr
    assert "training 4: " in again.stderr
    trained = CliRunner().invoke(train, [f"--config={best}", f"--out={tmp_path / 'model'}"])
    assert trained.exit_code == 0, trained.stderr
    assert load_info(tmp_path / "model").config.d_model in (8, 16)


def found_error(result: Result) -> float:
    """The lowest validation error of the lines of a search."""
    lines = [line for line in result.stderr.splitlines() if ": validation " in line]
    return min(float(line.split(": validation ")[1].split()[0]) for line in lines[:-1])


def test_the_first_training_is_by_the_defaults_and_what_follows_is_not(
    data: Path, tmp_path: Path
) -> None:
    search = search_of(data, tmp_path / "a", RATES)
    search.run(5, 1, lambda _: None)
    # Drawn anew, not what was drawn before.
    for _ in range(2):
        search = search_of(data, tmp_path / "a", RATES)
        search.run(5, 1, lambda _: None)
    first, *others = [trial.params["learning_rate"] for trial in search.ended]
    usual = forecaster_config(
        training_with(GIVEN, {}), ("value",), Frequency.parse("h")
    ).learning_rate
    assert first == usual
    assert len({first, *others}) == 3


def test_the_rows_of_the_test_split_do_not_count(data: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.csv"
    frame = pd.read_csv(data)
    frame.loc[240:, "load"] = 1000.0
    frame.to_csv(other, index=False)
    values = []
    for file in (data, other):
        search = search_of(file, tmp_path / f"{file.stem}.search", {"model.d_model": (8, 16)})
        search.run(5, 2, lambda _: None)
        values.append([trial.value for trial in search.ended])
    assert values[0] == values[1]


def test_a_training_that_promises_nothing_is_given_up(
    data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(optuna.pruners.MedianPruner, "prune", lambda *_: True)
    search = search_of(data, tmp_path / "a", {"model.d_model": (8, 16)})
    told: list[optuna.trial.FrozenTrial] = []
    search.run(5, 1, told.append)
    assert [len(trial.intermediate_values) for trial in told] == [1]
    _tell(told[0])
    assert "after 1 epochs, given up: model.d_model" in capsys.readouterr().err
    with pytest.raises(RefusedError, match="no training ended an epoch"):
        search.best()


def test_settings_that_do_not_go_together_are_told_and_left(data: Path, tmp_path: Path) -> None:
    search = search_of(data, tmp_path / "a", {"model.d_model": (7,)})
    told: list[optuna.trial.FrozenTrial] = []
    search.run(5, 1, told.append)
    assert "heads" in told[0].user_attrs["refused"]
    with pytest.raises(RefusedError, match="no choice could be trained, the last: heads: "):
        search.best()


def test_no_time_for_an_epoch(data: Path, tmp_path: Path) -> None:
    result = run("--minutes=0.00001", f"--out={tmp_path / 'best.yaml'}", data=data, **GIVEN)
    assert result.exit_code == 2
    assert "no training ended an epoch; give the search more minutes" in result.stderr
    assert not (tmp_path / "best.yaml").exists()


@pytest.mark.parametrize(
    ("words", "change", "message"),
    [
        (["--search=model.d_model"], {}, "--search model.d_model: expected a setting and values"),
        (["--search=model.heads=1,2"], {}, "model.heads: it is given, and to be searched"),
        (["--search=colour=1,2"], {}, "colour: unknown setting"),
        (["--search=loss=mse,[mae"], {}, "--search loss=mse,[mae: not YAML: "),
        (["--search=loss=mse,rmse"], {}, "loss: Input should be 'mse', "),
        (
            ["--search=model.moving_average=5"],
            {"context": None},
            "moving_average: patchtst has no such",
        ),
        ([], {"bounds": "lod=0:"}, "bounds: no channel 'lod' is forecast; did you mean 'load'?"),
        ([], {"target": "lod"}, "no column 'lod'; did you mean 'load'?"),
        ([], {"target": "load", "bounds": "7=0:"}, "bounds: no channel '7' is forecast"),
        ([], {"learning_rate": 2}, "learning_rate: "),
        ([], {"arch": None}, "arch is missing"),
        ([], {"horizon": None}, "horizon is missing"),
        ([], {"data": "nowhere.csv"}, "nowhere.csv"),
    ],
)
def test_bad_input_writes_nothing(
    data: Path, tmp_path: Path, words: list[str], change: dict[str, Any], message: str
) -> None:
    settings = {"data": data} | GIVEN | change
    given = {name: value for name, value in settings.items() if value is not None}
    out = tmp_path / "best.yaml"
    result = run("--minutes=1", "--trainings=1", f"--out={out}", *words, **given)
    assert result.exit_code == 2
    assert result.stderr.startswith("foretell tune: ")
    assert message in result.stderr
    assert [entry.name for entry in tmp_path.iterdir()] == ["data.csv"]


def test_a_target_whose_name_looks_like_a_number(data: Path, tmp_path: Path) -> None:
    best = tmp_path / "best.yaml"
    own = ("--minutes=5", "--trainings=1", "--search=batch_size=32", f"--out={best}")
    given = {name: value for name, value in GIVEN.items() if name != "batch_size"} | {"epochs": 1}
    result = run(*own, data=data, target="7", **given)
    assert result.exit_code == 0, result.stderr
    assert yaml.safe_load(best.read_text())["target"] == "7"


def test_another_search_is_not_gone_on_with(data: Path, tmp_path: Path) -> None:
    given = ("--minutes=5", "--trainings=1", f"--out={tmp_path / 'best.yaml'}")
    assert run(*given, "--search=model.d_model=8", data=data, **GIVEN).exit_code == 0
    refused = run(*given, "--search=model.d_model=16", data=data, **GIVEN)
    assert refused.exit_code == 2
    assert "a search with other settings; start afresh with --restart" in refused.stderr
    afresh = run(*given, "--search=model.d_model=16", "--restart", data=data, **GIVEN)
    assert afresh.exit_code == 0, afresh.stderr


def test_what_is_searched(data: Path) -> None:
    panel = read(data)
    given = {"arch": "patchtst", "horizon": 6, "model": {"d_ff": 8}}
    space = space_of(given, {"model.d_model": (8, 16)}, panel)
    # Not 6: a patch has 16 steps, of which a stride of 8 may be padding.
    assert space["context"] == (12, 24, 48)
    assert space["model.d_model"] == (8, 16)
    assert "model.d_ff" not in space
    assert isinstance(space["learning_rate"], Range)
    linear = {"arch": "dlinear", "horizon": 28}
    # Not 224: the 300 rows have no room for them.
    assert space_of(linear, {}, panel)["context"] == (28, 56, 112)
    assert "model.d_model" not in space_of(linear, {}, panel)
    with pytest.raises(RefusedError, match=r"no context fits: .*; give one with --context"):
        space_of(linear | {"horizon": 200}, {}, panel)


def test_values_to_try_are_read_as_yaml() -> None:
    assert read_choices(["model.d-model=8,16", "model.final_norm=none,null"]) == {
        "model.d_model": (8, 16),
        "model.final_norm": ("none", None),
    }


def test_what_is_given_is_written_so_that_train_reads_it(data: Path, tmp_path: Path) -> None:
    best = tmp_path / "best.yaml"
    frame = pd.read_csv(data).rename(columns={"load": "yes"})
    frame["date"] = pd.to_datetime(frame["date"]).dt.strftime("%d.%m.%Y %H:%M")
    frame.to_csv(data, index=False)
    said = {"bounds": "yes=-9:", "date_format": "%d.%m.%Y %H:%M", "channels": "yes", "data": data}
    result = run("--minutes=5", "--trainings=1", f"--out={best}", **said, **GIVEN)
    assert result.exit_code == 0, result.stderr
    trained = CliRunner().invoke(train, [f"--config={best}", f"--out={tmp_path / 'model'}"])
    assert trained.exit_code == 0, trained.stderr
    info = load_info(tmp_path / "model")
    assert (info.channels, info.bounds["yes"].low) == (("yes",), -9)
