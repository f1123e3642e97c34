import re
from pathlib import Path
from typing import Any, Literal

import pytest
import yaml
from click.testing import CliRunner, Result
from pydantic import BaseModel

from foretell.commands.presets import command as listing
from foretell.commands.settings import command as listed
from foretell.commands.train import command as train
from foretell.errors import RefusedError
from foretell.models.attention.mechanism import MECHANISMS
from foretell.models.checkpoint import load_info
from foretell.models.forecaster import ARCHITECTURES
from foretell.settings.described import values_of
from foretell.settings.given import gather, training_of
from foretell.settings.presets import Preset, preset, presets
from foretell.settings.yaml_file import load
from foretell.timeaxis.frequency import Frequency
from foretell.training.config import TrainingConfig
from foretell.training.preparation import forecaster_config

ALL = presets()


def run(*arguments: str) -> Result:
    return CliRunner().invoke(listing, arguments)


@pytest.mark.parametrize("one", ALL.values(), ids=ALL)
def test_each_is_a_recipe_for_a_model(one: Preset) -> None:
    settings = training_of(one.settings)
    minutes = "ettm" in one.name
    config = forecaster_config(
        settings, tuple("abcdefg"), Frequency.parse("15min" if minutes else "h")
    )
    assert settings.splits == ("ett-minute" if minutes else "ett-hourly")
    assert one.name.endswith(f"-{config.horizon}")
    assert settings.loss == "mse"
    assert settings.learning_rate is not None
    # Published code normalises no windows but those of PatchTST.
    assert (config.window_norm == "mean") == ("patchtst" in one.name)


def test_families_data_sets_and_horizons() -> None:
    assert len(ALL) == 6 * 4 * 4
    assert ALL["patchtst-42/etth1-96"].published == (0.375, 0.399)
    assert ALL["transformer/etth1-96"].published is None


def test_published_scripts_that_leave_the_frequency_at_its_default_read_no_minutes() -> None:
    def features(name: str) -> tuple[str, ...]:
        settings = training_of(preset(name).settings)
        config = forecaster_config(settings, tuple("abcdefg"), Frequency.parse("15min"))
        assert config.calendar is not None
        return config.calendar.features

    assert "minute" in features("autoformer/ettm1-96")
    for name in ("autoformer/ettm2-96", "transformer/ettm1-96", "transformer/ettm2-96"):
        assert features(name) == ("hour", "day_of_week", "day_of_month", "day_of_year")


def test_what_differs_wins() -> None:
    long, wide = preset("patchtst-64/etth1-96"), preset("patchtst-64/ettm1-96")
    assert (long.settings["context"], long.settings["model"]["d_model"]) == (512, 16)
    assert (wide.settings["context"], wide.settings["model"]["d_model"]) == (512, 128)
    assert preset("patchtst-96/etth1-96").settings["model"]["heads"] == 2
    assert preset("patchtst-96/etth1-192").settings["model"]["heads"] == 8


def test_one_that_is_not_there() -> None:
    with pytest.raises(RefusedError, match=r"no preset 'patchtst'; `foretell presets` lists them"):
        preset("patchtst")


def test_the_list(monkeypatch: pytest.MonkeyPatch) -> None:
    text = run().stdout
    for title in {one.title for one in ALL.values()}:
        assert title in text
    assert re.search(r"patchtst-42/etth1 .* 0\.375 / 0\.399 .* 0\.449 / 0\.466", text)


def test_one_is_printed_as_a_file_to_change(tmp_path: Path) -> None:
    result = run("dlinear/etth1-96")
    assert "# published: MSE 0.375, MAE 0.399" in result.stdout
    assert yaml.safe_load(result.stdout) == preset("dlinear/etth1-96").settings
    assert "# published:" not in run("transformer/etth1-96").stdout
    refused = run("dlinear")
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert refused.stderr.startswith("foretell presets: no preset 'dlinear'")


def test_files_and_flags_win_over_a_preset(tmp_path: Path) -> None:
    file, data, out = (tmp_path / name for name in ("settings.yaml", "data.csv", "model"))
    rows = [f"2024-01-{1 + i // 24:02} {i % 24:02}:00:00,{i % 24},{i}" for i in range(240)]
    data.write_text("\n".join(["date,OT,HUFL", *rows, ""]))
    file.write_text("context: 24\nhorizon: 2\nepochs: 2\nsplits: 0.7,0.1,0.2\n")
    flags = ["--preset=dlinear/etth1-96", f"--config={file}", "--epochs=1"]
    result = CliRunner().invoke(train, [*flags, f"--data={data}", f"--out={out}"])
    assert result.exit_code == 0, result.stderr
    info = load_info(out)
    assert (info.config.architecture, info.config.context, info.config.horizon) == (
        "dlinear",
        24,
        2,
    )
    assert info.config.window_norm is None
    assert info.training is not None
    assert (info.training.learning_rate, info.training.epochs) == (0.005, 1)


def test_words_win_over_a_file_and_flags_over_both(tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("batch-size: 8\nepochs: 2\nmodel: {heads: 2}\n")
    words = [
        "epochs=3",
        "model.d-model=64",
        "model.attention.factor=.5",
        "seed=1",
        "cut_at=2024-03-01",
    ]
    found = gather("patchtst-42/etth1-96", file, words[:2] + words[3:], {"seed": 7, "arch": None})
    assert (found["batch_size"], found["epochs"], found["seed"]) == (8, 3, 7)
    assert (found["arch"], found["model"]["heads"], found["model"]["d_model"]) == (
        "patchtst",
        2,
        64,
    )
    assert str(training_of(found | {"splits": (0.7, 0.1, 0.2)}).cut_at) == "2024-03-01 00:00:00"
    inner = gather("autoformer/etth1-96", None, words[2:3], {})["model"]["attention"]
    assert inner == {"mechanism": "autocorrelation", "factor": 0.5}


def test_none_is_nothing_in_a_model() -> None:
    given = gather("patchtst-42/etth1-96", None, ["model.window_norm=none"], {})
    assert training_of(given).model["window_norm"] is None
    assert training_of(given).model["final_norm"] is None


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["colour=red"], "^colour: unknown setting$"),
        (["epoch=3"], r"^epoch: unknown setting; did you mean epochs\?"),
        (["d_model=8"], r"^d_model: unknown setting; did you mean model\.d_model\?"),
        (["d_model"], "^--set d_model: expected NAME=VALUE, as in model.d_model=64"),
        (["loss=[a"], r"^--set loss=\[a: not YAML: "),
        (["arch.a=1"], "^arch.a: arch is 'dlinear', which has no settings"),
        (["arch=[a]"], "^arch: "),
        (["loss=rmse"], "^loss: .*got 'rmse'"),
        (["horizon=null"], "^horizon is missing; give --horizon, or set it in --config"),
    ],
)
def test_settings_that_are_none(words: list[str], message: str) -> None:
    with pytest.raises(RefusedError, match=message):
        training_of(gather("dlinear/etth1-96", None, words, {}))


def test_a_preset_that_is_not_there_ends_the_training() -> None:
    result = CliRunner().invoke(train, ["--preset=patchtst"])
    assert result.exit_code == 2
    assert result.stderr.startswith("foretell train: no preset 'patchtst'")


def test_all_settings_are_listed() -> None:
    found = {
        name: CliRunner().invoke(listed, [name]).stdout for name in (*ARCHITECTURES, *MECHANISMS)
    }
    for name, config in ARCHITECTURES.items():
        own = config.model_fields.keys() - {"architecture", "channels", "targets", "calendar"}
        assert all(f"│ model.{each} " in found[name] for each in own - {"context", "horizon"})
    text = CliRunner().invoke(listed, []).stdout
    assert all(f"│ {name} " in text for name in TrainingConfig.model_fields.keys() - {"model"})
    assert "architectures: autoformer, dlinear" in text
    words = " ".join(found["autoformer"].split())
    assert "│ model.embedding │ timeF|learned|fixed │ timeF │ Of calendar features." in words
    assert "│ model.attention │ mechanisms │ autocorrelation │" in words
    assert "│ model.attention.factor " in found["autocorrelation"]
    result = CliRunner().invoke(listed, ["oracle"])
    assert result.exit_code == 2
    assert (
        "neither an architecture nor a mechanism is called 'oracle'; import; arch" in result.stderr
    )


def test_settings_of_any_type_are_described() -> None:
    class Odd(BaseModel):
        order: Literal[1, 2] = 1
        either: Literal["a", None] = None
        nested: TrainingConfig | None = None
        anything: Any = None

    schema = Odd.model_json_schema()["properties"]
    assert [values_of(schema[name]) for name in Odd.model_fields] == ["1|2", "a", "VALUE", "VALUE"]


def test_yaml_may_repeat_itself_by_name_alone() -> None:
    text = "a: 1\nb: &same {c: [x, 2]}\nd: *same\n"
    assert load(text, "here") == {"a": 1, "b": {"c": ["x", 2]}, "d": {"c": ["x", 2]}}
    for given in ("a: 1\na: 2\n", "b: {c: 1, c: 1}\n"):
        with pytest.raises(RefusedError, match=r"(?s)here: not YAML: [ac] is given twice.*line \d"):
            load(given, "here")
