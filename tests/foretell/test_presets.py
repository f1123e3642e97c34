import re
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from foretell.commands import presets as listing
from foretell.commands import train as training
from foretell.commands.train_options import Arguments, arguments_of
from foretell.models.checkpoint import load_info
from foretell.presets import Preset, PresetError, preset, presets
from foretell.timeaxis.frequency import Frequency
from foretell.training.preparation import forecaster_config

ALL = presets()


def run(*arguments: str) -> Result:
    return CliRunner().invoke(listing.command, arguments)


@pytest.mark.parametrize("one", ALL.values(), ids=ALL)
def test_each_is_a_recipe_for_a_model(one: Preset) -> None:
    given = one.settings | {"data": "-", "out": "-"}
    settings = Arguments.model_validate(arguments_of(given)).settings()
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
        given = preset(name).settings | {"data": "-", "out": "-"}
        settings = Arguments.model_validate(arguments_of(given)).settings()
        config = forecaster_config(settings, tuple("abcdefg"), Frequency.parse("15min"))
        assert config.calendar is not None
        return config.calendar.features

    assert "minute" in features("autoformer/ettm1-96")
    for name in ("autoformer/ettm2-96", "transformer/ettm1-96", "transformer/ettm2-96"):
        assert features(name) == ("hour", "day_of_week", "day_of_month", "day_of_year")


def test_what_differs_wins() -> None:
    long, wide = preset("patchtst-64/etth1-96"), preset("patchtst-64/ettm1-96")
    assert (long.settings["context"], long.settings["d_model"]) == (512, 16)
    assert (wide.settings["context"], wide.settings["d_model"]) == (512, 128)
    assert preset("patchtst-96/etth1-96").settings["heads"] == 2
    assert preset("patchtst-96/etth1-192").settings["heads"] == 8


def test_one_that_is_not_there() -> None:
    with pytest.raises(PresetError, match=r"no preset 'patchtst'; `foretell presets` lists them"):
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
    result = CliRunner().invoke(training.command, [*flags, f"--data={data}", f"--out={out}"])
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


def test_training_by_a_preset_that_is_not_there() -> None:
    result = CliRunner().invoke(training.command, ["--preset=patchtst"])
    assert result.exit_code == 2
    assert result.stderr.startswith("foretell train: --preset: no preset 'patchtst'")
