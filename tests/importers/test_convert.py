from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from foretell.bundle.manifest import Scaler
from foretell.data.reading import read
from foretell.data.source import DataSource
from foretell.data.splits import Splits
from foretell.importers.convert import Imported, Request, import_checkpoint
from foretell.importers.errors import ImporterError
from foretell.models.architectures.autoformer import AutoformerConfig
from foretell.models.architectures.patchtst import PatchTSTConfig
from tests.importers import published

SETTING = (
    "long_term_forecast_x_{model}_custom_ftM_sl24_ll12_pl6_dm8_nh2_el2_dl1_df12_expand2_dc4_fc2_"
    "ebtimeF_dtTrue_Exp_0"
)
FORMS = ["autoformer", "transformer", "patchtst", "official"]


def request(folder: Path, form: str = "autoformer", **changes: Any) -> Request:
    """What to ask for, with all that it takes: custom data and every argument as a flag."""
    source, architecture = ("patchtst",) * 2 if form == "official" else ("tslib", form)
    layout = published.layout(source, architecture)
    arguments = published.ARGUMENTS[form] | {"split": "custom", "target": "OT", "n_heads": "2"}
    return replace(
        Request(
            file=published.save(folder, published.make(form), layout),
            source=source,
            architecture=architecture,
            data=published.write_csv(folder),
            arguments=arguments,
        ),
        **changes,
    )


def without(asked: Request, *names: str) -> Request:
    left = {name: value for name, value in asked.arguments.items() if name not in names}
    return replace(asked, arguments=left)


def refused(asked: Request) -> str:
    with pytest.raises(ImporterError) as error:
        import_checkpoint(asked)
    return str(error.value)


def forecast(imported: Imported) -> torch.Tensor:
    config = imported.model.config
    torch.manual_seed(1)
    parts = [torch.randn(2, config.context, config.channels)]
    if config.calendar is not None:
        parts += [torch.rand(2, config.context, 4), torch.rand(2, config.horizon, 4)]
    with torch.inference_mode():
        return imported.model(*parts)


@pytest.mark.parametrize("form", FORMS)
def test_adopts_every_architecture(tmp_path: Path, form: str) -> None:
    imported = import_checkpoint(request(tmp_path, form))
    info = imported.info
    original = published.make(form)
    torch.testing.assert_close(
        forecast(imported), forecast(imported._replace(model=original)), atol=1e-6, rtol=0
    )
    assert info.channels == published.CHANNELS
    assert info.frequency == "h"
    assert info.training is None
    source = DataSource.recorded(info.data)
    assert source is not None
    assert source.splits == Splits.by_fraction()
    train = read(tmp_path / "train.csv").tables[0].values[:140]
    np.testing.assert_allclose(info.scaler.mean, train.mean(axis=0))
    np.testing.assert_allclose(info.scaler.std, train.std(axis=0))
    assert info.test is not None
    assert info.test.windows == 64 - 24 - 6 + 1


def test_tells_the_provenance_of_each_argument(tmp_path: Path) -> None:
    asked = without(
        request(tmp_path, setting=SETTING.format(model="Autoformer")),
        "seq_len",
        "label_len",
        "pred_len",
        "n_heads",
        "factor",
        "split",
    )
    found = import_checkpoint(asked).arguments
    assert found["seq_len"] == (24, "setting")
    assert found["d_model"] == (8, "the file")
    assert found["moving_avg"] == (5, "--moving_avg")
    assert found["split"] == ("custom", "setting")
    assert "stride" not in found


def test_asks_for_all_that_is_missing_at_once(tmp_path: Path) -> None:
    text = refused(request(tmp_path, arguments={}))
    asked = [line.split()[0] for line in text.splitlines()[1:-1]]
    assert asked == [
        "--seq_len",
        "--pred_len",
        "--n_heads",
        "--activation",
        "--label_len",
        "--factor",
        "--moving_avg",
        "--split",
        "--target",
    ]


def test_asks_for_what_patchtst_of_its_paper_does_not_tell(tmp_path: Path) -> None:
    text = refused(request(tmp_path, "official", arguments={"seq_len": "24"}))
    asked = [line.split()[0] for line in text.splitlines()[1:-1]]
    assert asked == ["--n_heads", "--revin", "--subtract_last", "--split"]


def test_asks_for_the_stride_where_it_cannot_be_worked_out(tmp_path: Path) -> None:
    asked = request(tmp_path, "official", arguments={"revin": "0", "split": "custom"})
    text = refused(asked)
    names = [line.split()[0] for line in text.splitlines()[1:-1]]
    assert names == ["--seq_len", "--n_heads", "--stride", "--padding_patch"]


def test_setting_of_the_folder_the_file_lies_in(tmp_path: Path) -> None:
    folder = tmp_path / SETTING.format(model="PatchTST")
    folder.mkdir()
    imported = import_checkpoint(request(folder, "patchtst", arguments={"activation": "gelu"}))
    assert imported.arguments["seq_len"] == (24, "its folder's name")
    assert isinstance(imported.model.config, PatchTSTConfig)
    assert imported.model.config.stride == 3


def test_script_with_its_defaults(tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    script.write_text(
        "python run.py --model Transformer --data custom --seq_len 24 --label_len 12 --pred_len 6 "
        "--n_heads 2\n"
    )
    imported = import_checkpoint(request(tmp_path, "transformer", arguments={}, script=str(script)))
    assert imported.arguments["seq_len"] == (24, "run.sh")
    assert imported.arguments["activation"] == ("gelu", "default of the Time-Series-Library")
    assert imported.arguments["target"] == ("OT", "default of the Time-Series-Library")


RUN = "python run.py --model Transformer --data custom --seq_len 24 --label_len 12 --pred_len 6"


@pytest.mark.parametrize(
    "script",
    [
        f"heads=2 # small\n{RUN} --n_heads $heads\n",
        f"heads=2; width=8\n{RUN} --n_heads ${{heads}} --d_model $width\n",
    ],
)
def test_a_variable_of_a_script_makes_the_model(tmp_path: Path, script: str) -> None:
    (tmp_path / "run.sh").write_text(script)
    asked = request(tmp_path, "transformer", arguments={}, script=str(tmp_path / "run.sh"))
    found = import_checkpoint(asked)
    assert found.arguments["n_heads"] == (2, "run.sh")
    original = published.make("transformer")
    torch.testing.assert_close(forecast(found), forecast(found._replace(model=original)))


@pytest.mark.parametrize("value", ["$1", "$heads", "$((1+1))", "${heads[0]}", "$(nproc)", ""])
@pytest.mark.parametrize("defaults", [False, True])
def test_asks_for_what_a_script_says_and_nobody_can_read(
    tmp_path: Path, value: str, defaults: bool
) -> None:
    (tmp_path / "run.sh").write_text(f"heads=(2 4)\n{RUN} --n_heads {value} --d_ff 12\n")
    asked = request(
        tmp_path, "transformer", arguments={}, script=str(tmp_path / "run.sh"), defaults=defaults
    )
    lines = refused(asked).splitlines()
    assert lines[1:-1] == [f"  --n_heads  attention heads (run.sh has {value or 'no value'})"]
    found = import_checkpoint(replace(asked, arguments={"n_heads": "2"}))
    assert found.arguments["n_heads"] == (2, "--n_heads")


def test_asks_whether_all_channels_are_forecast(tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text(f"{RUN} --n_heads 2 --features $kind\n")
    asked = request(tmp_path, "transformer", arguments={}, script=str(tmp_path / "run.sh"))
    assert "--features  M for all channels" in refused(asked)


def test_no_defaults_where_a_variable_may_hold_options(tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text(f'{RUN} "${{more[@]}}"\n')
    asked = request(tmp_path, "transformer", arguments={}, script=str(tmp_path / "run.sh"))
    assert {"--n_heads", "--activation"} <= set(refused(asked).split())


def test_names_what_it_is_where_the_folder_does(tmp_path: Path) -> None:
    asked = request(tmp_path, setting=SETTING.format(model="Autoformer"))
    unnamed = replace(asked, source=None, architecture=None)
    assert isinstance(import_checkpoint(unnamed).info.config, AutoformerConfig)
    with pytest.raises(ImporterError, match="use --from tslib or autoformer or tfb --arch autof"):
        import_checkpoint(replace(unnamed, setting=None))


def test_defaults_on_request(tmp_path: Path) -> None:
    asked = without(request(tmp_path, defaults=True), "activation", "target")
    found = import_checkpoint(asked).arguments
    assert found["activation"] == ("gelu", "default of the Time-Series-Library")
    # A flag is never overruled by a default.
    assert found["moving_avg"] == (5, "--moving_avg")


@pytest.mark.parametrize(("source", "lags"), [("tslib", "even"), ("autoformer", "all")])
def test_lags_are_those_of_the_code_base(tmp_path: Path, source: str, lags: str) -> None:
    imported = import_checkpoint(request(tmp_path, source=source))
    assert isinstance(imported.info.config, AutoformerConfig)
    (mechanism,) = imported.info.config.attention
    assert mechanism.model_dump() == {
        "mechanism": "autocorrelation",
        "factor": 2,
        "lags": lags,
        "training_lags": "batch",
        "longer_query": "whole",
    }


def test_target_decides_the_order_of_custom_channels(tmp_path: Path) -> None:
    asked = request(tmp_path)
    moved = replace(asked, arguments={**asked.arguments, "target": "load"})
    imported = import_checkpoint(moved)
    assert imported.info.channels == ("wind", "OT", "load")
    values = read(tmp_path / "train.csv").tables[0].values[:140, 0]
    assert imported.info.scaler.mean[2] == pytest.approx(values.mean())


def test_a_model_of_the_target_alone(tmp_path: Path) -> None:
    asked = request(tmp_path, "patchtst")
    alone = replace(asked, arguments={**asked.arguments, "features": "S", "target": "wind"})
    info = import_checkpoint(alone).info
    assert info.channels == ("wind",)
    assert info.config.channels == 1
    assert "--target" in refused(without(alone, "target"))


def test_channels_by_name(tmp_path: Path) -> None:
    asked = without(request(tmp_path, channels=("OT", "load", "wind")), "target")
    assert import_checkpoint(asked).info.channels == ("OT", "load", "wind")


def test_scaler_that_was_given(tmp_path: Path) -> None:
    scaler = Scaler(mean=(1, 2, 3), std=(4, 5, 6))
    info = import_checkpoint(request(tmp_path, scaler=scaler)).info
    assert info.scaler == scaler
    assert info.test is not None


def test_without_data(tmp_path: Path) -> None:
    asked = request(
        tmp_path,
        data=None,
        scaler=Scaler(mean=(1, 2, 3), std=(4, 5, 6)),
        channels=("a", "b", "c"),
        frequency="15min",
    )
    info = import_checkpoint(without(asked, "split", "target")).info
    assert info.channels == ("a", "b", "c")
    assert info.frequency == "15min"
    assert info.data is None
    assert info.test is None


SCALER = Scaler(mean=(1, 2, 3), std=(4, 5, 6))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"data": None}, "without --data, .* --channels, --frequency, --mean and --std"),
        ({"frequency": "fortnight"}, "--frequency: expected a frequency"),
        ({"scaler": Scaler(mean=(1,), std=(1,))}, "have 1 numbers, the model has 3 channels"),
        (
            {"data": None, "scaler": SCALER, "frequency": "h", "channels": ("a",)},
            "--channels: expected 3 names, got 1",
        ),
        (
            {"data": None, "scaler": SCALER, "frequency": "h", "channels": ("a", "b", "a")},
            "--channels: a name occurs twice",
        ),
        ({"setting": "checkpoints"}, "setting 'checkpoints': expected a folder name"),
        ({"setting": SETTING.format(model="PatchTST")}, "setting is of a PatchTST"),
        ({"script": "none.sh"}, r"--config none\.sh: No such file"),
        ({"architecture": "transformer"}, "use --from .* --arch autoformer"),
        ({"arguments": {"split": "x"}, "defaults": True}, "expected ett_hour, ett_minute"),
    ],
)
def test_refuses(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    asked = request(tmp_path)
    if "arguments" in changes:
        changes = changes | {"arguments": {**asked.arguments, **changes["arguments"]}}
    with pytest.raises(ImporterError, match=message):
        import_checkpoint(replace(asked, **changes))


def test_refuses_data_that_is_too_short(tmp_path: Path) -> None:
    asked = request(tmp_path)
    with pytest.raises(ValueError, match="it ends at row 14400"):
        import_checkpoint(replace(asked, arguments={**asked.arguments, "split": "ett_hour"}))
