"""Files of published code, and arguments that they lack: given, required or refused."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from foretell.bundle.scaler import Scaler
from foretell.data.reading import read
from foretell.data.source import DataSource
from foretell.data.splits import Splits
from foretell.importers.arguments import OPTIONS
from foretell.importers.code_base import steps_of_patches
from foretell.importers.convert import Imported, import_checkpoint
from foretell.importers.errors import ImporterError
from foretell.importers.published import CODE_BASES
from foretell.importers.registry import ARCHITECTURES
from foretell.importers.registry import CODE_BASES as SOURCES
from foretell.importers.saved import Request
from foretell.models import config
from foretell.models.layers.embedding import sinusoids
from foretell.timeaxis.calendar import Calendar
from foretell.timeaxis.frequency import Frequency
from tests.importers import published

FORMS = ("autoformer", "transformer", "patchtst", "official", "timexer")
SETTING = (
    "long_term_forecast_x_{}_custom_ftM_sl24_ll12_pl6_dm8_nh2_el2_dl1_df12_expand2_dc4_fc2_"
    "ebtimeF_dtTrue_Exp_0"
)
RUN = "python run.py --model Transformer --data custom --seq_len 24 --label_len 12 --pred_len 6"
SCALER = Scaler(mean=(1, 2, 3), std=(4, 5, 6))
POSITIONS = "patch_embedding.position_embedding.pe"
SCALE = "model.backbone.encoder.layers.{}.self_attn.sdp_attn.scale"


def request(folder: Path, form: str = "transformer", **changes: Any) -> Request:
    """A request with custom data and every argument as a flag."""
    source, name = ("patchtst", "patchtst") if form == "official" else ("tslib", form)
    new = Request(
        file=published.save(folder, published.make(form), published.keys(form)),
        source=source,
        architecture=name,
        data=published.write_csv(folder),
        arguments=published.ARGUMENTS[form] | {"split": "custom", "target": "OT", "n_heads": "2"},
    )
    return replace(new, **changes)


def given(original: Request, *omitted: str, **arguments: str) -> Request:
    """With further arguments, or without some."""
    kept = {name: each for name, each in original.arguments.items() if name not in omitted}
    return replace(original, arguments=kept | arguments)


def from_script(folder: Path, text: str, **changes: Any) -> Request:
    (folder / "run.sh").write_text(text)
    return request(folder, arguments={}, script=str(folder / "run.sh"), **changes)


def refused(original: Request) -> str:
    with pytest.raises(ImporterError) as error:
        import_checkpoint(original)
    return str(error.value)


def required_names(original: Request) -> list[str]:
    return [line.split()[0] for line in refused(original).splitlines()[1:-1]]


def assert_is(imported: Imported, form: str, **changes: Any) -> None:
    expected = published.forecast(published.make(form, **changes))
    torch.testing.assert_close(published.forecast(imported.model), expected, atol=1e-6, rtol=0)


def calendar(unit: str, encoding: str) -> Calendar:
    return Calendar.for_frequency(Frequency.parse(unit), encoding)  # type: ignore[arg-type]


# Form, changes of the model, and parts of keys by which they are recognised.
VARIANTS: list[tuple[str, dict[str, Any], tuple[str, ...]]] = [
    *((form, {}, ()) for form in FORMS),
    *(
        (form, {"calendar": calendar(unit, "scaled")}, ())
        for form in ("autoformer", "transformer")
        for unit in ("s", "min", "D", "W", "M")
    ),
    *(
        ("transformer", {"calendar": calendar(unit, "integer"), "embedding": embed}, (part,))
        for unit in ("h", "min")
        for embed, part in (("learned", "-"), ("fixed", "_embed.emb."))
    ),
    ("patchtst", {"final_norm": "layer"}, ("-",)),
    *(
        (
            "official",
            {
                "norm": norm,
                "affine": affine,
                "individual": individual,
                "decomposition": 5 if decomposed else None,
            },
            (
                *[".norm_attn.1."] * (norm == "batch"),
                *["revin_layer."] * affine,
                *["head.linears."] * individual,
                *["model_res."] * decomposed,
                "-",
            ),
        )
        for norm, affine, individual, decomposed in itertools.product(
            ("batch", "layer"), *[(False, True)] * 3
        )
    ),
]


@pytest.mark.parametrize(("form", "changes", "parts"), VARIANTS, ids=str)
def test_imported_model_equals_the_published_one(
    tmp_path: Path, form: str, changes: dict[str, Any], parts: tuple[str, ...]
) -> None:
    import_request, model = request(tmp_path, form), published.make(form, **changes)
    published.save(tmp_path, model, published.keys(form, *parts))
    imported = import_checkpoint(given(import_request, kernel_size="5"))
    assert_is(imported, form, **changes)
    expected = model.config.model_dump()
    if form == "autoformer":
        expected["attention"][0]["lags"] = "even"
    assert imported.model.config.model_dump() == expected


def test_data_give_channels_scaler_and_accuracy(tmp_path: Path) -> None:
    info = import_checkpoint(request(tmp_path)).info
    assert (info.channels, info.frequency, info.training) == (published.CHANNELS, "h", None)
    source = DataSource.recorded(info.data)
    assert source is not None
    assert source.splits == Splits.by_fraction()
    train = read(tmp_path / "train.csv").tables[0].values[:140]
    np.testing.assert_allclose(info.scaler.mean, train.mean(axis=0))
    np.testing.assert_allclose(info.scaler.std, train.std(axis=0))
    assert info.test is not None
    assert info.test.windows == 64 - 24 - 6 + 1


def test_import_without_data_needs_channels_frequency_and_scaler(tmp_path: Path) -> None:
    described = {"channels": ("a", "b", "c"), "frequency": "15min", "scaler": SCALER}
    import_request = given(request(tmp_path, data=None, **described), "split", "target")
    info = import_checkpoint(import_request).info
    assert (info.channels, info.frequency, info.scaler) == (*described.values(),)
    assert (info.data, info.test) == (None, None)
    assert import_checkpoint(request(tmp_path, scaler=SCALER)).info.scaler == SCALER


def test_provenance_of_each_argument(tmp_path: Path) -> None:
    import_request = request(tmp_path, "autoformer", setting=SETTING.format("Autoformer"))
    flags = ("seq_len", "label_len", "pred_len", "n_heads", "factor", "split")
    found = import_checkpoint(given(import_request, *flags)).arguments
    assert found["seq_len"] == (24, "setting")
    assert found["d_model"] == (8, "the file")
    assert found["moving_avg"] == (5, "--set")
    assert found["split"] == ("custom", "setting")
    assert found["lags"] == ("even", "fixed in the Time-Series-Library")
    assert "stride" not in found
    assert "dropout" not in found


@pytest.mark.parametrize(
    ("form", "arguments", "names"),
    [
        (
            "autoformer",
            {},
            "seq_len pred_len n_heads activation label_len factor moving_avg split target",
        ),
        ("transformer", {}, "seq_len pred_len n_heads activation label_len split target"),
        ("official", {"seq_len": "24"}, "n_heads revin subtract_last split"),
        ("timexer", {"seq_len": "24"}, "n_heads activation use_norm embed freq split target"),
        (
            "official",
            {"revin": "0", "split": "custom"},
            "seq_len n_heads stride padding_patch",
        ),
    ],
)
def test_all_missing_arguments_are_listed_at_once(
    tmp_path: Path, form: str, arguments: dict[str, str], names: str
) -> None:
    import_request = request(tmp_path, form, arguments=arguments)
    assert required_names(import_request) == names.split()
    lines = refused(import_request).splitlines()
    assert "--assume-defaults takes the defaults" in lines[-1]
    if not arguments:
        assert lines[1].endswith("steps of history [96]")


def test_setting_is_the_name_of_the_folder(tmp_path: Path) -> None:
    folder = tmp_path / SETTING.format("PatchTST")
    folder.mkdir()
    imported = import_checkpoint(request(folder, "patchtst", arguments={"activation": "gelu"}))
    assert imported.arguments["seq_len"] == (24, "its folder's name")
    # The shape of the head gives the stride, and the code base fixes the padding.
    assert imported.arguments["stride"] == (3, "the file's number of patches")
    assert imported.arguments["padding_patch"] == ("end", "fixed in the Time-Series-Library")


def test_setting_names_model_and_source(tmp_path: Path) -> None:
    import_request = request(tmp_path, "autoformer", setting=SETTING.format("Autoformer"))
    unnamed = replace(import_request, source=None, architecture=None)
    assert_is(import_checkpoint(unnamed), "autoformer")
    message = "its keys alone do not identify it: use --from tslib or autoformer or tfb --arch "
    assert message in refused(replace(unnamed, setting=None))
    # Without the task as prefix all three code bases may have written the name.
    setting = SETTING.format("Autoformer").removeprefix("long_term_forecast_")
    assert message in refused(replace(unnamed, setting=setting))
    official = request(tmp_path, "official", source=None)
    assert_is(import_checkpoint(official), "official")


@pytest.mark.parametrize(
    "script",
    [
        f"heads=2 # small\n{RUN} --n_heads $heads\n",
        f"heads=2; width=8\n{RUN} --n_heads ${{heads}} --d_model $width\n",
        f"{RUN} --n_heads 4\n{RUN} --n_heads 2 --d_model 8\n{RUN} --n_heads 8 --d_model 16\n",
        "\n".join(f"{RUN} --n_heads 2 --is_training {i} --seed {i} --des Exp{i}" for i in range(2)),
        f"for n in 6 12; do {RUN.replace('--pred_len 6', '--pred_len $n')} --n_heads 2\ndone",
    ],
)
def test_script_makes_the_model(tmp_path: Path, script: str) -> None:
    import_request = given(from_script(tmp_path, script), pred_len="6")
    if "--n_heads 4" in script:
        import_request = given(import_request, n_heads="2")
    found = import_checkpoint(import_request)
    assert_is(found, "transformer")
    assert found.arguments["seq_len"] == (24, "run.sh")
    assert found.arguments["n_heads"].value == 2
    # Arguments that a command omits have the defaults of its code.
    assert found.arguments["activation"] == ("gelu", "default of the Time-Series-Library")
    assert found.arguments["target"] == ("OT", "default of the Time-Series-Library")


@pytest.mark.parametrize("value", ["$1", "$heads", "$((1+1))", "${heads[0]}", "$(nproc)", ""])
@pytest.mark.parametrize("defaults", [False, True])
def test_value_of_a_shell_variable_is_required(tmp_path: Path, value: str, defaults: bool) -> None:
    script = f"heads=(2 4)\n{RUN} --n_heads {value} --d_ff 12\n"
    import_request = from_script(tmp_path, script, defaults=defaults)
    lines = refused(import_request).splitlines()
    assert lines[1:-1] == [f"  n_heads  attention heads (run.sh has {value or 'no value'})"]
    found = import_checkpoint(given(import_request, n_heads="2"))
    assert found.arguments["n_heads"] == (2, "--set")


def test_variable_may_decide_what_is_forecast_or_hold_options(tmp_path: Path) -> None:
    import_request = from_script(tmp_path, f"{RUN} --n_heads 2 --features $kind\n")
    assert required_names(import_request) == ["features"]
    import_request = from_script(tmp_path, f'{RUN} "${{more[@]}}"\n')
    assert {"n_heads", "activation"} <= set(required_names(import_request))


@pytest.mark.parametrize(("sizes", "count"), [((16, 32), "none"), ((8, 8), "2")])
def test_one_of_several_commands_has_to_fit(
    tmp_path: Path, sizes: tuple[int, int], count: str
) -> None:
    runs = [f"{RUN} --n_heads 2 --d_model {size} --factor {i}" for i, size in enumerate(sizes)]
    message = refused(from_script(tmp_path, "\n".join(runs)))
    assert f"{count} of the 2 commands of the script fit the file and what is given" in message
    assert "give the one that trained it, as --config 'python run.py" in message
    assert ("and differ in factor:" in message) == (count == "2")


def test_defaults_on_request(tmp_path: Path) -> None:
    import_request = given(request(tmp_path, "autoformer", defaults=True), "activation", "target")
    found = import_checkpoint(import_request).arguments
    assert found["activation"] == ("gelu", "default of the Time-Series-Library")
    # A default does not replace a flag.
    assert found["moving_avg"] == (5, "--set")
    # The frequency of the data does not change the calendar features of a file.
    minutes = published.make("transformer", calendar=calendar("min", "scaled"))
    import_request = request(tmp_path, defaults=True)
    published.save(tmp_path, minutes, published.keys("transformer"))
    assert not {"freq", "marks"} & import_checkpoint(import_request).arguments.keys()


@pytest.mark.parametrize(
    ("source", "arguments", "expected"),
    [
        ("tslib", {}, {"label_len": (12, "--set"), "lags": "even"}),
        ("autoformer", {}, {"label_len": (12, "--set"), "lags": "all"}),
        ("tfb", {"label_len": ""}, {"label_len": (12, "fixed in TFB"), "lags": "even"}),
    ],
)
def test_code_bases_of_the_same_keys_differ(
    tmp_path: Path, source: str, arguments: dict[str, str], expected: dict[str, Any]
) -> None:
    import_request = given(request(tmp_path, "autoformer", source=source), *arguments)
    found = import_checkpoint(import_request)
    assert found.arguments["label_len"] == expected["label_len"]
    assert found.model.config.model_dump()["attention"][0]["lags"] == expected["lags"]


@pytest.mark.parametrize(("channels", "expected"), [(3, 12), (1, 6), (None, None)])
def test_label_length_in_tfb(channels: int | None, expected: int | None) -> None:
    arguments = {"enc_in": channels, "seq_len": 24, "pred_len": 6} if channels else {"enc_in": 1}
    assert CODE_BASES["tfb"].fixed(arguments).get("label_len") == expected


def test_label_length_of_a_file_is_not_that_of_tfb(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"seq_len": 24, "horizon": 6, "label_len": 99, "n_heads": 2}')
    import_request = request(tmp_path, source="tfb", script=str(tmp_path / "a.json"))
    import_request = given(
        replace(import_request, arguments={"split": "custom"}), activation="gelu"
    )
    found = import_checkpoint(import_request).arguments
    assert found["label_len"] == (12, "fixed in TFB")
    assert found["pred_len"] == (6, "a.json")


def test_argument_that_the_published_code_fixes(tmp_path: Path) -> None:
    run = "python run.py --activation relu --seq_len 24 --stride 3 --n_heads 2 --data custom"
    found = import_checkpoint(request(tmp_path, "official", arguments={}, script=run))
    assert found.arguments["activation"] == ("gelu", "fixed in yuqinie98/PatchTST")


# Names of code bases and architectures in foretell.
KNOWN = [(source, name) for source, code in CODE_BASES.items() for name in code.architectures]


def test_registry_matches_code_bases() -> None:
    assert set(SOURCES) == set(CODE_BASES)
    assert {*ARCHITECTURES} == {name for _, name in KNOWN} <= set(config.ARCHITECTURES)


@pytest.mark.parametrize(("source", "name"), KNOWN)
def test_fields_and_defaults_are_known(source: str, name: str) -> None:
    code = CODE_BASES[source]
    architecture = code.architectures[name]
    fields = {field for field in architecture.fields.values() if field is not None}
    assert fields <= set(config.ARCHITECTURES[name].model_fields)
    assert code.defaults.keys() <= OPTIONS.keys()


@pytest.mark.parametrize("form", FORMS)
def test_another_architecture_is_refused_by_the_right_one(tmp_path: Path, form: str) -> None:
    import_request = request(tmp_path, form)
    for name in set(ARCHITECTURES) - {import_request.architecture}:
        message = refused(replace(import_request, source="tslib", architecture=name))
        assert f" --arch {import_request.architecture}" in message.rpartition("use")[2]
    assert "do not identify it: use --from" in refused(replace(import_request, architecture=None))


@pytest.mark.parametrize(
    ("form", "changes", "message"),
    [
        ("transformer", {"data": None}, "without --data, .* --channels, --frequency, --mean and"),
        ("transformer", {"frequency": "fortnight"}, "--frequency: expected a frequency"),
        (
            "transformer",
            {"scaler": Scaler(mean=(1,), std=(1,))},
            "have 1 numbers, the model has 3 channels",
        ),
        (
            "transformer",
            {"data": None, "scaler": SCALER, "frequency": "h", "channels": ("a",)},
            "--channels: expected 3 names, got 1",
        ),
        (
            "transformer",
            {"data": None, "scaler": SCALER, "frequency": "h", "channels": ("a", "b", "a")},
            "--channels: a name occurs twice",
        ),
        ("transformer", {"channels": ("load",)}, r"1 channels \(load\), but the model has 3; name"),
        ("transformer", {"setting": "checkpoints"}, "setting 'checkpoints': expected a folder nam"),
        ("transformer", {"setting": SETTING.format("PatchTST")}, "setting names a PatchTST"),
        (
            "transformer",
            {"setting": SETTING.format("Transformer").replace("long_term_forecast", "imputation")},
            r"task_name 'imputation' \(setting\): Input should be 'long_term_forecast'",
        ),
        ("transformer", {"script": "none.sh"}, r"--config none\.sh: No such file"),
        ("transformer", {"source": "patchtst"}, "patchtst transformer is not read; use --from pat"),
        (
            "patchtst",
            {"source": "autoformer"},
            "autoformer patchtst is not read; use --from autoformer --arch autoformer or transform",
        ),
        ("transformer", {"split": "x"}, "split x: expected ett_hour, ett_minute"),
        ("transformer", {"target": "x"}, "target x: no such channel; there are load, wind, OT"),
        ("transformer", {"seq_len": "0"}, r"seq_len '0' \(--set\): Input should be greater"),
        ("transformer", {"seq_len": "x"}, r"seq_len 'x' \(--set\): Input should be a valid in"),
        ("transformer", {"label_len": "-1"}, "label_len '-1' .*greater than or equal to 0"),
        ("transformer", {"activation": "tanh"}, "Input should be 'gelu' or 'relu'"),
        ("official", {"revin": "2"}, r"revin '2' \(--set\): Input should be a valid boolean"),
        ("transformer", {"factor": "three"}, "factor 'three' .*: Input should be a valid number"),
        ("transformer", {"n_heads": "3"}, "do not fit together: heads: 3 heads do not divide d_mo"),
        (
            "transformer",
            {"d_model": "16", "e_layers": "5"},
            "contradictions: d_model is 16 by --set, 8 by the file; e_layers is 5 by",
        ),
        ("transformer", {"freq": "t"}, "freq t has 5 calendar features, the file has 4"),
        ("transformer", {"c_out": "2"}, "c_out is 2 by --set, 3 by the file"),
        ("official", {"stride": "5"}, "the file has 8 patches, which seq_len 24, .* stride 5, .*"),
        (
            "transformer",
            {"setting": SETTING.format("Transformer"), "script": f"{RUN} --n_heads 4"},
            "contradictions: n_heads is 2 by setting, 4 by --config",
        ),
        ("transformer", {"features": "S"}, "enc_in is 1 by features S of --set, 3 by the fil"),
        (
            "patchtst",
            {"enc_in": "3", "c_out": "2"},
            "has 3 channels and forecasts 2, feature",
        ),
        ("patchtst", {"source": "tfb", "features": "MS"}, "features MS: TFB has no models of one"),
    ],
)
def test_refused(tmp_path: Path, form: str, changes: dict[str, Any], message: str) -> None:
    own = Request.__dataclass_fields__
    fields = {name: value for name, value in changes.items() if name in own}
    flags = {name: value for name, value in changes.items() if name not in own}
    import_request = given(request(tmp_path, form, **fields), **flags)
    if "script" in fields and "setting" in fields:
        import_request = given(import_request, "n_heads")
    with pytest.raises(ImporterError, match=message):
        import_checkpoint(import_request)


def test_flags_go_before_setting_and_script(tmp_path: Path) -> None:
    setting = SETTING.format("Transformer").replace("nh2", "nh4")
    import_request = request(tmp_path, setting=setting, script=f"{RUN} --n_heads 8")
    assert import_checkpoint(import_request).arguments["n_heads"] == (2, "--set")


def damaged(original: Request, changes: Mapping[str, torch.Tensor | None]) -> Request:
    state = torch.load(original.file) | changes
    torch.save({key: each for key, each in state.items() if each is not None}, original.file)
    return original


CALENDAR = "{}_embedding.temporal_embedding.embed.weight"


@pytest.mark.parametrize(
    ("form", "changes", "message"),
    [
        (
            "transformer",
            {CALENDAR.format(side): torch.ones(8, 9) for side in ("enc", "dec")},
            "it reads 9 calendar features; expected 1 to 6",
        ),
        (
            "transformer",
            {"enc_embedding.position_embedding.pe": torch.randn(1, 100, 8)},
            "its positions are not the sinusoids",
        ),
        (
            "transformer",
            {"encoder.attn_layers.0.conv2.weight": None},
            "encoder.attn_layers.0.conv2.weight is missing, which determines d_model",
        ),
        (
            "patchtst",
            {"head.linear.weight": torch.ones(3)},
            "head.linear.weight has 1 axes, which should determine flattened",
        ),
        ("transformer", {"decoder.norm.bias": torch.ones(8).int()}, "decoder.norm.bias is of type"),
    ],
)
def test_damaged_file_is_refused(
    tmp_path: Path, form: str, changes: dict[str, torch.Tensor | None], message: str
) -> None:
    assert message in refused(damaged(request(tmp_path, form), changes))


def test_unknown_keys_are_refused(tmp_path: Path) -> None:
    import_request = request(tmp_path)
    torch.save({"fc.weight": torch.ones(1), "fc.bias": torch.ones(1)}, import_request.file)
    assert "none of its 2 keys is known: fc.weight, fc.bias" in refused(import_request)


@pytest.mark.parametrize("learned", [False, True])
def test_table_of_positions_that_is_longer(tmp_path: Path, learned: bool) -> None:
    import_request = request(tmp_path, "patchtst")
    model = published.make("patchtst", positions="learned" if learned else "sinusoidal")
    state = published.publish(model, published.keys("patchtst"))
    table = torch.randn(1, 100, 8) if learned else sinusoids(100, 8)[None]
    if learned:
        table[0, :8] = state[POSITIONS]
    torch.save(state | {POSITIONS: table}, import_request.file)
    found = import_checkpoint(import_request)
    assert torch.equal(published.forecast(found.model), published.forecast(model))


@pytest.mark.parametrize(("scale", "heads"), [(8**-0.5, 1), (4**-0.5, 2), (0.6, None), (0.0, None)])
def test_heads_of_the_stored_attention_scale(
    tmp_path: Path, scale: float, heads: int | None
) -> None:
    scales = {SCALE.format(layer): torch.tensor(scale) for layer in range(2)}
    import_request = damaged(given(request(tmp_path, "official"), "n_heads"), scales)
    if heads is None:
        assert required_names(import_request) == ["n_heads"]
    else:
        assert import_checkpoint(import_request).arguments["n_heads"] == (heads, "the file")


@pytest.mark.parametrize("factor", [1.0, 0.7, 3.0])
def test_trained_attention_scale_is_folded_into_the_query(tmp_path: Path, factor: float) -> None:
    scales = {SCALE.format(layer): torch.tensor(4**-0.5 * factor) for layer in range(2)}
    found = import_checkpoint(damaged(request(tmp_path, "official"), scales)).model
    model: Any = published.make("official")
    for layer in model.branches[0].layers:
        layer.attention.query.weight.data *= factor
        layer.attention.query.bias.data *= factor
    torch.testing.assert_close(published.forecast(found), published.forecast(model))


@pytest.mark.parametrize(
    ("patches", "known", "expected"),
    [
        (42, {}, {}),
        (42, {"seq_len": 336, "stride": 8}, {"padding_patch": "end"}),
        (41, {"seq_len": 336, "stride": 8}, {"padding_patch": "None"}),
        (42, {"seq_len": 336, "padding_patch": "end"}, {"stride": 8}),
        # 20 // 7, 20 // 8, 20 // 9 and 20 // 10 are all 2.
        (4, {"seq_len": 36, "padding_patch": "end"}, {}),
        (4, {"seq_len": 36, "padding_patch": "end", "usual_stride": 8}, {"stride": 8}),
        (22, {"seq_len": 336, "padding_patch": "end", "usual_stride": 8}, {"stride": 16}),
    ],
)
def test_stride_and_padding_of_a_number_of_patches(
    patches: int, known: dict[str, Any], expected: dict[str, Any]
) -> None:
    found = steps_of_patches(patches, {"patch_len": 16, **known})
    assert {name: each.value for name, each in found.items()} == expected


@pytest.mark.parametrize(
    ("marks", "embed", "freq", "expected"),
    [
        ("1", "timeF", "h", calendar("h", "scaled")),
        ("1", "timeF", "15min", calendar("min", "scaled")),
        ("0", "fixed", "h", None),
        ("1", "fixed", "h", "embed fixed: calendar features as tokens are read for timeF only"),
        ("1", "timeF", "x", "freq x: "),
    ],
)
def test_calendar_features_as_tokens(
    marks: str, embed: str, freq: str, expected: Calendar | str | None
) -> None:
    configure = CODE_BASES["tslib"].architectures["itransformer"].configure
    values = {"marks": int(marks), "embed": embed, "freq": freq}
    if isinstance(expected, str):
        with pytest.raises(ImporterError, match=expected):
            configure(values)
    else:
        assert configure(values).get("calendar") == expected


# The published `MS`: all channels are read, and the last one is what is forecast.


@pytest.mark.parametrize(
    "form", ["autoformer", "dlinear", "itransformer", "official", "patchtst", "transformer"]
)
def test_target_is_moved_and_is_the_only_forecast(tmp_path: Path, form: str) -> None:
    import_request = given(request(tmp_path, form), features="MS", target="wind")
    imported = import_checkpoint(import_request)
    info = imported.info
    assert (info.channels, info.targets) == (("load", "OT", "wind"), ("wind",))
    expected = published.forecast(published.make(form))[..., -1:]
    torch.testing.assert_close(published.forecast(imported.model), expected, atol=1e-6, rtol=0)
    assert imported.arguments["features"].value == "MS"
    assert "target" in refused(given(import_request, "target"))


@pytest.mark.parametrize("form", ["autoformer", "transformer"])
def test_one_row_of_outputs(tmp_path: Path, form: str) -> None:
    """With c_out 1 the published code has one row of outputs, and broadcasts its trend."""
    import_request = given(request(tmp_path, form), features="MS", target="wind")
    model: Any = published.make(form)
    state = published.publish(model, published.keys(form))
    single = {
        key: each[1:2] if "projection." in key and len(each) == 3 else each
        for key, each in state.items()
    }
    assert sum(len(each) != len(state[key]) for key, each in single.items()) >= 2
    torch.save(single, import_request.file)
    # The published model: projections with one output, and broadcasting.
    row = nn.Linear(8, 1)
    row.load_state_dict({name: each[1:2] for name, each in model.projection.state_dict().items()})
    model.projection = row
    if form == "autoformer":
        trends = model.decoder_layers[0].trend_projection.convolution
        trends.weight = nn.Parameter(trends.weight[1:2])
    expected = published.forecast(model)[..., -1:]
    for each in (import_request, given(import_request, "features")):
        imported = import_checkpoint(each)
        torch.testing.assert_close(published.forecast(imported.model), expected, atol=1e-6, rtol=0)
        assert imported.info.targets == ("wind",)


def test_channels_by_name_or_in_order_move_no_target(tmp_path: Path) -> None:
    named = request(tmp_path, "patchtst", channels=("wind", "OT", "load"))
    assert import_checkpoint(given(named, "target", features="MS")).info.targets == ("load",)
    assert "target wind: the model forecasts its last channel, which is load" in refused(
        given(named, features="MS", target="wind")
    )
    ett = given(request(tmp_path, "patchtst"), "target", features="MS", split="ett_hour")
    published.write_csv(tmp_path, 14400)
    assert import_checkpoint(ett).info.targets == ("OT",)
    assert "which is OT" in refused(given(ett, target="wind"))


def test_target_decides_the_order_of_custom_channels(tmp_path: Path) -> None:
    info = import_checkpoint(given(request(tmp_path), target="load")).info
    assert info.channels == ("wind", "OT", "load")
    values = read(tmp_path / "train.csv").tables[0].values[:140, 0]
    assert info.scaler.mean[2] == pytest.approx(values.mean())
    # TFB does not move the target.
    assert import_checkpoint(given(request(tmp_path, source="tfb"), "label_len")).info.channels == (
        published.CHANNELS
    )


@pytest.mark.parametrize("form", ["patchtst", "transformer"])
def test_univariate_target_is_a_model_of_one_channel(tmp_path: Path, form: str) -> None:
    import_request = given(request(tmp_path, form), features="S", target="wind")
    published.save(tmp_path, published.make(form, channels=1), published.keys(form))
    imported = import_checkpoint(import_request)
    assert (imported.info.channels, imported.info.config.targets) == (("wind",), None)
    assert_is(imported, form, channels=1)
    assert "target" in refused(given(import_request, "target"))


@pytest.mark.parametrize(
    ("features", "own", "channels"),
    [
        ("MS", {"targets": (2,)}, ("load", "OT", "wind")),
        ("S", {"channels": 1, "exogenous": "others"}, ("wind",)),
        ("M", {"window_norm": None}, ("load", "OT", "wind")),
    ],
)
def test_features_decide_what_a_timexer_reads(
    tmp_path: Path, features: str, own: dict[str, Any], channels: tuple[str, ...]
) -> None:
    norm = {"use_norm": "0"} if "window_norm" in own else {}
    import_request = given(request(tmp_path, "timexer"), features=features, target="wind", **norm)
    model = published.make("timexer", **own)
    published.save(tmp_path, model, published.keys("timexer"))
    imported = import_checkpoint(import_request)
    assert imported.info.channels == channels
    assert imported.model.config == model.config
    assert_is(imported, "timexer", **own)
    assert imported.arguments["features"].value == features


def test_features_that_contradict_a_timexer_are_refused(tmp_path: Path) -> None:
    import_request = request(tmp_path, "timexer")
    assert import_checkpoint(import_request).arguments["features"] == ("M", "the file")
    assert "features is MS by --set, M by the file" in refused(given(import_request, features="MS"))
    single = published.make("timexer", targets=(2,))
    published.save(tmp_path, single, published.keys("timexer"))
    assert required_names(import_request) == ["features"]
    message = "features M of 3 channels, but the file forecasts 1; give features MS"
    assert message in refused(replace(import_request, defaults=True))
    table = {POSITIONS.replace("patch_embedding", "en_embedding"): torch.randn(1, 9, 8)}
    assert "are not the sinusoids" in refused(damaged(import_request, table))
