import re
from pathlib import Path
from typing import Any, Literal

import pytest
import yaml
from pydantic import BaseModel

from foretell.errors import RefusedError
from foretell.models.attention.mechanism import MECHANISMS
from foretell.models.checkpoint import load_info
from foretell.models.config import ARCHITECTURES
from foretell.settings.described import values_of
from foretell.settings.given import gather, training_of
from foretell.settings.presets import Preset, preset, presets
from foretell.settings.yaml_file import load
from foretell.timeaxis.frequency import Frequency
from foretell.training.config import TrainingConfig
from foretell.training.preparation import forecaster_config
from tests.support.command import done, refused

ALL = presets()


@pytest.mark.parametrize("one", ALL.values(), ids=ALL)
def test_each_preset_is_a_recipe_for_a_model(one: Preset) -> None:
    settings = training_of(one.settings)
    minutes = "ettm" in one.name
    config = forecaster_config(
        settings, tuple("abcdefg"), Frequency.parse("15min" if minutes else "h")
    )
    assert settings.splits == ("ett-minute" if minutes else "ett-hourly")
    assert one.name.endswith(f"-{config.horizon}")
    assert settings.loss == "mse"
    assert settings.learning_rate is not None
    # Published code normalises windows of PatchTST and TimeXer only.
    normed = one.name.startswith(("patchtst", "timexer"))
    assert (config.window_norm == "mean") == normed


def test_families_data_sets_and_horizons() -> None:
    # TimeXer has the hourly data and one horizon.
    assert len(ALL) == 6 * 4 * 4 + 2
    assert ALL["patchtst-42/etth1-96"].published == (0.375, 0.399)
    assert ALL["transformer/etth1-96"].published is None


def test_default_frequency_of_published_scripts_has_no_minutes() -> None:
    def features(name: str) -> tuple[str, ...]:
        settings = training_of(preset(name).settings)
        config = forecaster_config(settings, tuple("abcdefg"), Frequency.parse("15min"))
        assert config.calendar is not None
        return config.calendar.features

    assert "minute" in features("autoformer/ettm1-96")
    for name in ("autoformer/ettm2-96", "transformer/ettm1-96", "transformer/ettm2-96"):
        assert features(name) == ("hour", "day_of_week", "day_of_month", "day_of_year")


def test_settings_of_a_horizon_override_the_family() -> None:
    long, wide = preset("patchtst-64/etth1-96"), preset("patchtst-64/ettm1-96")
    assert (long.settings["context"], long.settings["model"]["d_model"]) == (512, 16)
    assert (wide.settings["context"], wide.settings["model"]["d_model"]) == (512, 128)
    assert preset("patchtst-96/etth1-96").settings["model"]["heads"] == 2
    assert preset("patchtst-96/etth1-192").settings["model"]["heads"] == 8


def test_presets_are_listed_and_printed_as_files_to_change() -> None:
    text = done("presets").stdout
    for title in {one.title for one in ALL.values()}:
        assert title in text
    assert re.search(r"patchtst-42/etth1 .* 0\.375 / 0\.399 .* 0\.449 / 0\.466", text)
    printed = done("presets", "dlinear/etth1-96").stdout
    assert "# published: MSE 0.375, MAE 0.399" in printed
    assert yaml.safe_load(printed) == preset("dlinear/etth1-96").settings
    assert "# published:" not in done("presets", "transformer/etth1-96").stdout


@pytest.mark.parametrize(
    "words", [["presets", "patchtst"], ["train", "--preset=patchtst"]], ids=lambda words: words[0]
)
def test_unknown_preset_is_refused(words: list[str]) -> None:
    unknown = "no preset 'patchtst'; `foretell presets` lists them"
    assert refused(*words).startswith(f"foretell {words[0]}: {unknown}")


def test_files_and_flags_win_over_a_preset(tmp_path: Path) -> None:
    file, data, out = (tmp_path / name for name in ("settings.yaml", "data.csv", "model"))
    rows = [f"2024-01-{1 + i // 24:02} {i % 24:02}:00:00,{i % 24},{i}" for i in range(240)]
    data.write_text("\n".join(["date,OT,HUFL", *rows, ""]))
    file.write_text("context: 24\nhorizon: 2\nepochs: 2\nsplits: 0.7,0.1,0.2\n")
    flags = ["--preset=dlinear/etth1-96", f"--config={file}", "--epochs=1"]
    done("train", *flags, f"--data={data}", f"--out={out}")
    info = load_info(out)
    config = info.config
    assert (config.architecture, config.context, config.horizon) == ("dlinear", 24, 2)
    assert config.window_norm is None
    assert info.training is not None
    assert (info.training.learning_rate, info.training.epochs) == (0.005, 1)


def test_set_overrides_a_file_and_flags_override_both(tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("batch-size: 8\nepochs: 2\nmodel: {heads: 2}\n")
    words = ["epochs=3", "model.d-model=64", "seed=1", "cut_at=2024-03-01"]
    found = gather("patchtst-42/etth1-96", file, words, {"seed": 7, "arch": None})
    assert (found["batch_size"], found["epochs"], found["seed"]) == (8, 3, 7)
    model = found["model"]
    assert (found["arch"], model["heads"], model["d_model"]) == ("patchtst", 2, 64)
    assert str(training_of(found | {"splits": (0.7, 0.1, 0.2)}).cut_at) == "2024-03-01 00:00:00"
    inner = gather("autoformer/etth1-96", None, ["model.attention.factor=.5"], {})
    assert inner["model"]["attention"] == {"mechanism": "autocorrelation", "factor": 0.5}


def test_none_is_a_value_of_a_model() -> None:
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
def test_wrong_settings_are_refused(words: list[str], message: str) -> None:
    with pytest.raises(RefusedError, match=message):
        training_of(gather("dlinear/etth1-96", None, words, {}))


def test_all_settings_are_listed() -> None:
    found = {name: done("settings", name).stdout for name in (*ARCHITECTURES, *MECHANISMS)}
    for name, config in ARCHITECTURES.items():
        own = config.model_fields.keys() - {"architecture", "channels", "targets", "calendar"}
        of_data = {"context", "horizon", "covariates"}
        assert all(f"│ model.{each} " in found[name] for each in own - of_data)
    text = done("settings").stdout
    assert all(f"│ {name} " in text for name in TrainingConfig.model_fields.keys() - {"model"})
    assert "architectures: autoformer, dlinear" in text
    words = " ".join(found["autoformer"].split())
    assert (
        "│ model.embedding │ timeF|learned|fixed │ timeF │ Embedding of calendar features." in words
    )
    assert "│ model.attention │ mechanisms │ autocorrelation │" in words
    assert "│ model.attention.factor " in found["autocorrelation"]
    unknown = "neither an architecture nor a mechanism is called 'oracle'; import; arch"
    assert unknown in refused("settings", "oracle")


def test_settings_of_any_type_are_described() -> None:
    class Odd(BaseModel):
        order: Literal[1, 2] = 1
        either: Literal["a", None] = None
        nested: TrainingConfig | None = None
        anything: Any = None

    schema = Odd.model_json_schema()["properties"]
    assert [values_of(schema[name]) for name in Odd.model_fields] == ["1|2", "a", "VALUE", "VALUE"]


def test_yaml_may_name_a_part_but_repeat_no_setting() -> None:
    text = "a: 1\nb: &same {c: [x, 2]}\nd: *same\n"
    assert load(text, "here") == {"a": 1, "b": {"c": ["x", 2]}, "d": {"c": ["x", 2]}}
    for given in ("a: 1\na: 2\n", "b: {c: 1, c: 1}\n"):
        with pytest.raises(RefusedError, match=r"(?s)here: not YAML: [ac] is given twice.*line \d"):
            load(given, "here")
