from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pandas as pd
import pytest
import yaml

from foretell.commands.tune import _tell
from foretell.data.reading import read
from foretell.errors import RefusedError
from foretell.models.checkpoint import load_info
from foretell.timeaxis.frequency import Frequency
from foretell.training.preparation import forecaster_config
from foretell.tuning.search import Search
from foretell.tuning.space import Range, read_choices, space_of, training_with
from tests.foretell.test_train import words
from tests.support.command import done, refused, run

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


def given(**changes: Any) -> list[str]:
    """Options of a search: `GIVEN` with changes; None removes an option."""
    settings = GIVEN | changes
    settings |= settings.pop("model", {})
    return words(**{name: value for name, value in settings.items() if value is not None})


def search_of(data: Path, journal: Path, space: dict[str, Any]) -> Search:
    return Search(GIVEN, space, read(data), journal)


def test_writes_settings_for_train(data: Path, tmp_path: Path) -> None:
    best = tmp_path / "best.yaml"
    search = ["tune", "--minutes=5", "--trainings=2", f"--out={best}", *given(data=data)]
    result = done(*search, "--search=model.d_model=8,16")
    found = yaml.safe_load(best.read_text())
    assert result.stdout == best.read_text()
    assert found["model"]["d_model"] in (8, 16)
    assert 1e-4 <= found["learning_rate"] <= 2e-2
    assert (found["context"], found["data"]) == (24, str(data))
    assert "training 1: validation" in result.stderr
    *trainings, _ = [line for line in result.stderr.splitlines() if ": validation " in line]
    lowest = min(float(line.split(": validation ")[1].split()[0]) for line in trainings)
    assert f"best of 2 trainings: validation MSE {lowest:.4f}" in result.stderr
    again = done(*search, "--search=model.d_model=8,16")
    assert "resuming after 2 trainings" in again.stderr
    assert "training 4: " in again.stderr
    done("train", f"--config={best}", f"--out={tmp_path / 'model'}")
    assert load_info(tmp_path / "model").config.d_model in (8, 16)
    message = refused(*search, "--search=model.d_model=16")
    assert "a search with other settings; start afresh with --restart" in message
    done(*search, "--search=model.d_model=16", "--restart")


def test_only_the_first_training_has_the_defaults(data: Path, tmp_path: Path) -> None:
    search = search_of(data, tmp_path / "a", RATES)
    search.run(5, 1, lambda _: None)
    # A resumed search draws new trials, not the earlier ones again.
    for _ in range(2):
        search = search_of(data, tmp_path / "a", RATES)
        search.run(5, 1, lambda _: None)
    first, *others = [trial.params["learning_rate"] for trial in search.ended]
    usual = forecaster_config(
        training_with(GIVEN, {}), ("value",), Frequency.parse("h")
    ).learning_rate
    assert first == usual
    assert len({first, *others}) == 3


def test_rows_of_the_test_split_do_not_count(data: Path, tmp_path: Path) -> None:
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


def test_bad_training_is_stopped_early(
    data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(optuna.pruners.MedianPruner, "prune", lambda *_: True)
    search = search_of(data, tmp_path / "a", {"model.d_model": (8, 16)})
    trials: list[optuna.trial.FrozenTrial] = []
    search.run(5, 1, trials.append)
    assert [len(trial.intermediate_values) for trial in trials] == [1]
    _tell(trials[0])
    assert "after 1 epochs, given up: model.d_model" in capsys.readouterr().err
    with pytest.raises(RefusedError, match="no training ended an epoch"):
        search.best()


def test_incompatible_settings_are_reported_and_skipped(data: Path, tmp_path: Path) -> None:
    search = search_of(data, tmp_path / "a", {"model.d_model": (7,)})
    trials: list[optuna.trial.FrozenTrial] = []
    search.run(5, 1, trials.append)
    assert "heads" in trials[0].user_attrs["refused"]
    with pytest.raises(RefusedError, match="every choice of settings failed; the last: heads: "):
        search.best()


def test_search_without_time_for_an_epoch_is_refused(data: Path, tmp_path: Path) -> None:
    best = tmp_path / "best.yaml"
    result = run("tune", "--minutes=0.00001", f"--out={best}", *given(data=data))
    assert result.exit_code == 2
    assert "no training ended an epoch; give the search more minutes" in result.stderr
    assert not best.exists()


@pytest.mark.parametrize(
    ("option", "change", "message"),
    [
        ("--search=model.d_model", {}, "--search model.d_model: expected a setting and values"),
        ("--search=model.heads=1,2", {}, "model.heads: the setting is both fixed and searched"),
        ("--search=colour=1,2", {}, "colour: unknown setting"),
        ("--search=loss=mse,[mae", {}, "--search loss=mse,[mae: not YAML: "),
        ("--search=loss=mse,rmse", {}, "loss: Input should be 'mse', "),
        ("--search=model.moving_average=5", {"context": None}, "moving_average: patchtst has no"),
        ("--trainings=1", {"bounds": "lod=0:"}, "bounds: no channel 'lod' is forecast; did you "),
        ("--trainings=1", {"target": "lod"}, "no column 'lod'; did you mean 'load'?"),
        ("--target=load", {"bounds": "7=0:"}, "bounds: no channel '7' is forecast"),
        ("--trainings=1", {"learning_rate": 2}, "learning_rate: "),
        ("--trainings=1", {"arch": None}, "arch is missing"),
        ("--trainings=1", {"horizon": None}, "horizon is missing"),
        ("--trainings=1", {"data": "nowhere.csv"}, "nowhere.csv"),
    ],
)
def test_bad_input_writes_nothing(
    data: Path, tmp_path: Path, option: str, change: dict[str, Any], message: str
) -> None:
    settings = given(**{"data": data} | change)
    out = f"--out={tmp_path / 'best.yaml'}"
    assert message in refused("tune", "--minutes=1", out, option, *settings)
    assert [entry.name for entry in tmp_path.iterdir()] == ["data.csv"]


def test_given_settings_leave_the_search_space(data: Path) -> None:
    panel = read(data)
    given = {"arch": "patchtst", "horizon": 6, "model": {"d_ff": 8}}
    space = space_of(given, {"model.d_model": (8, 16)}, panel)
    # Not 6: a patch has 16 steps, of which a stride of 8 may be padding.
    assert space["context"] == (12, 24, 48)
    assert space["model.d_model"] == (8, 16)
    assert "model.d_ff" not in space
    assert isinstance(space["learning_rate"], Range)
    linear = {"arch": "dlinear", "horizon": 28}
    # Not 224, for which 300 rows are too few.
    assert space_of(linear, {}, panel)["context"] == (28, 56, 112)
    assert "model.d_model" not in space_of(linear, {}, panel)
    with pytest.raises(RefusedError, match=r"no context fits: .*; give one with --context"):
        space_of(linear | {"horizon": 200}, {}, panel)


def test_values_to_try_are_read_as_yaml() -> None:
    assert read_choices(["model.d-model=8,16", "model.final_norm=none,null"]) == {
        "model.d_model": (8, 16),
        "model.final_norm": ("none", None),
    }


def test_ambiguous_settings_are_quoted_for_train(data: Path, tmp_path: Path) -> None:
    best = tmp_path / "best.yaml"
    frame = pd.read_csv(data).rename(columns={"load": "yes"})
    frame["date"] = pd.to_datetime(frame["date"]).dt.strftime("%d.%m.%Y %H:%M")
    frame.to_csv(data, index=False)
    ambiguous = {
        "bounds": "7=-9:",
        "date_format": "%d.%m.%Y %H:%M",
        "channels": "yes,7",
        "data": data,
    }
    search = ["--minutes=5", "--trainings=1", f"--out={best}"]
    done("tune", *search, *given(**ambiguous, target="7", epochs=1))
    assert yaml.safe_load(best.read_text())["target"] == "7"
    done("train", f"--config={best}", f"--out={tmp_path / 'model'}")
    info = load_info(tmp_path / "model")
    assert (info.channels, info.targets, info.bounds["7"].low) == (("yes", "7"), ("7",), -9)
