import pytest

from foretell.importers.errors import ImporterError
from foretell.importers.given import read_arguments, read_setting

SIZES = {"seq_len": 336, "label_len": 48, "pred_len": 96, "d_model": 16, "n_heads": 4}
LAYERS = {"e_layers": 3, "d_layers": 1, "d_ff": 128, "factor": 1.0, "embed": "timeF"}
TAIL = "ftM_sl336_ll48_pl96_dm16_nh4_el3_dl1_df128"


def read(**given: object) -> dict[str, object]:
    arguments = read_arguments(given)
    return {name: known.value for name, known in arguments.items()}


def test_reads_what_matters_and_leaves_out_the_rest() -> None:
    given = {"seq_len": 96, "n_heads": "8", "dropout": "0.3", "learning_rate": 1, "des": "Exp"}
    assert read(**given) == {"seq_len": 96, "n_heads": 8, "dropout": 0.3}


@pytest.mark.parametrize(
    ("value", "expected"), [("1", 1), (0, 0), (True, 1), (False, 0), ("True", 1), ("false", 0)]
)
def test_switches(value: object, expected: int) -> None:
    assert read(revin=value) == {"revin": expected}


def test_horizon_is_pred_len() -> None:
    assert read(horizon=24) == {"pred_len": 24}


def test_null_padding() -> None:
    assert read(padding_patch=None) == {"padding_patch": "None"}


def test_provenance_of_each() -> None:
    flags = read_arguments({"seq_len": 1, "stride": 2})
    assert [known.provenance for known in flags.values()] == ["--seq_len", "--stride"]
    assert read_arguments({"seq_len": 1}, "a.yaml")["seq_len"].provenance == "a.yaml"


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("seq_len", "0", "whole number from 1"),
        ("seq_len", "x", "expected a number"),
        ("label_len", "-1", "whole number from 0"),
        ("activation", "tanh", "expected gelu or relu"),
        ("embed", "time", "expected timeF or fixed or learned"),
        ("revin", "2", "expected 0 or 1"),
        ("factor", "three", "expected a number"),
    ],
)
def test_refuses_with_name_and_provenance(name: str, value: str, message: str) -> None:
    with pytest.raises(ImporterError, match=rf"{name} '{value}' \(--{name}\): .*{message}"):
        read(**{name: value})


@pytest.mark.parametrize(
    ("name", "extra"),
    [
        # yuqinie98/PatchTST and thuml/Autoformer
        (
            f"ETTh1_336_96_PatchTST_ETTh1_{TAIL}_fc1_ebtimeF_dtTrue_Exp_0",
            {"model": "PatchTST", "data": "ETTh1"},
        ),
        (
            f"weather_96_96_Autoformer_custom_{TAIL}_fc1_ebtimeF_dtTrue_Exp_0",
            {"model": "Autoformer", "data": "custom"},
        ),
        # The Time-Series-Library before and since 2024
        (
            f"long_term_forecast_ECL_96_96_Transformer_custom_{TAIL}_fc1_ebtimeF_dtTrue_Exp_0",
            {"task_name": "long_term_forecast", "model": "Transformer", "data": "custom"},
        ),
        (
            "long_term_forecast_ETTm2_96_96_PatchTST_ETTm2_"
            f"{TAIL}_expand2_dc4_fc1_ebtimeF_dtTrue_test projection_0",
            {"task_name": "long_term_forecast", "model": "PatchTST", "data": "ETTm2"},
        ),
        # A fork without `dt`
        (
            f"long_term_forecast_x_PatchTST_ETTh2_{TAIL}_fc1_ebtimeF_Exp_1",
            {"task_name": "long_term_forecast", "model": "PatchTST", "data": "ETTh2"},
        ),
    ],
)
def test_generations(name: str, extra: dict[str, str]) -> None:
    arguments = read_setting(name, "setting")
    assert arguments is not None
    assert {key: known.value for key, known in arguments.items()} == {
        "features": "M",
        **SIZES,
        **LAYERS,
        **extra,
    }
    assert {known.provenance for known in arguments.values()} == {"setting"}


def test_model_id_with_underscores_and_other_features() -> None:
    name = "my_own_id_Autoformer_ETTm1_ftMS_sl96_ll0_pl24_dm8_nh1_el1_dl2_df8_fc3_eblearned_dtFalse"
    arguments = read_setting(name, "setting")
    assert arguments is not None
    assert arguments["features"].value == "MS"
    assert arguments["label_len"].value == 0
    assert arguments["embed"].value == "learned"
    assert arguments["data"].value == "ETTm1"


@pytest.mark.parametrize("name", ["", "checkpoints", "ETTh1_336_96_PatchTST", TAIL + "_fc1"])
def test_no_setting(name: str) -> None:
    assert read_setting(name, "setting") is None


def test_settings_of_what_is_no_forecaster() -> None:
    name = f"imputation_x_Transformer_ETTh2_{TAIL}_fc1_ebtimeF_Exp_1"
    with pytest.raises(ImporterError, match=r"task_name 'imputation' \(setting\): expected long_"):
        read_setting(name, "setting")
