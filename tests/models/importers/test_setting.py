import pytest

from foretell.models.importers.errors import ImporterError
from foretell.models.importers.setting import is_setting, parse_setting

SIZES = {"seq_len": 336, "label_len": 48, "pred_len": 96, "d_model": 16, "n_heads": 4}
LAYERS = {"e_layers": 3, "d_layers": 1, "d_ff": 128, "factor": 1.0, "embed": "timeF"}
TAIL = "ftM_sl336_ll48_pl96_dm16_nh4_el3_dl1_df128"


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
    assert is_setting(name)
    facts = parse_setting(name)
    assert {key: known.value for key, known in facts.items()} == {
        "features": "M",
        **SIZES,
        **LAYERS,
        **extra,
    }
    assert {known.origin for known in facts.values()} == {"setting"}


def test_model_id_with_underscores_and_other_features() -> None:
    name = "my_own_id_Autoformer_ETTm1_ftMS_sl96_ll0_pl24_dm8_nh1_el1_dl2_df8_fc3_eblearned_dtFalse"
    facts = parse_setting(name)
    assert facts["features"].value == "MS"
    assert facts["label_len"].value == 0
    assert facts["embed"].value == "learned"
    assert facts["data"].value == "ETTm1"


@pytest.mark.parametrize("name", ["", "checkpoints", "ETTh1_336_96_PatchTST", TAIL + "_fc1"])
def test_no_setting(name: str) -> None:
    assert not is_setting(name)
    with pytest.raises(ImporterError, match="expected a folder name such as"):
        parse_setting(name)
