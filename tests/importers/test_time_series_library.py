import numpy as np
import pytest
import torch

from foretell.importers.arguments import Argument, Arguments
from foretell.importers.configure import required
from foretell.importers.errors import ImporterError
from foretell.importers.infer import infer, recognise
from foretell.importers.reading import read_state
from foretell.importers.registry import CODE_BASES
from foretell.models.layers.embedding import sinusoids
from foretell.timeaxis.calendar import Calendar
from foretell.timeaxis.frequency import Frequency
from tests import golden
from tests.importers import published

SIZES = {"d_model": 8, "d_ff": 12, "e_layers": 2}
SERIES = {**SIZES, "enc_in": 3, "c_out": 3, "d_layers": 1}
LINEAR = ("tslib_dlinear", "tslib_dlinear_individual")
INVERTED = ("tslib_itransformer", "tslib_itransformer_nomarks")
POSITIONS = "patch_embedding.position_embedding.pe"


def values(state: dict[str, torch.Tensor], source: str, architecture: str) -> dict[str, object]:
    _, entry, layout = recognise(state, source, architecture)
    arguments = infer(state, entry, layout).arguments
    return {name: argument.value for name, argument in arguments.items()}


def calendar(unit: str, encoding: str) -> Calendar:
    return Calendar.for_frequency(Frequency.parse(unit), encoding)  # type: ignore[arg-type]


@pytest.mark.parametrize("architecture", ["autoformer", "transformer"])
@pytest.mark.parametrize("unit", ["s", "min", "h", "D", "W", "M"])
def test_time_series_models(architecture: str, unit: str) -> None:
    scaled = calendar(unit, "scaled")
    layout = published.layout("tslib", architecture, embed="timeF")
    state = published.publish(published.make(architecture, calendar=scaled), layout)
    assert recognise(state, "tslib", architecture).layout is layout
    told = values(state, "tslib", architecture)
    assert told == {**SERIES, "embed": "timeF", "calendar": scaled}


@pytest.mark.parametrize("embed", ["learned", "fixed"])
@pytest.mark.parametrize("unit", ["h", "min"])
def test_calendar_tables(embed: str, unit: str) -> None:
    integers = calendar(unit, "integer")
    layout = published.layout("autoformer", "transformer", embed=embed)
    model = published.make("transformer", calendar=integers, embedding=embed)
    state = published.publish(model, layout)
    told = values(state, "autoformer", "transformer")
    assert (told["embed"], told["calendar"]) == (embed, integers)


def test_a_number_of_calendar_features_that_no_frequency_has() -> None:
    layout = published.layout("tslib", "transformer", embed="timeF")
    state = published.publish(published.make("transformer"), layout)
    for side in ("enc", "dec"):
        state[f"{side}_embedding.temporal_embedding.embed.weight"] = torch.ones(8, 9)
    with pytest.raises(ImporterError, match="reads 9 calendar features; expected 1 to 6"):
        values(state, "tslib", "transformer")


def test_a_transformer_of_other_positions() -> None:
    layout = published.layout("tslib", "transformer", embed="timeF")
    state = published.publish(published.make("transformer"), layout)
    state["enc_embedding.position_embedding.pe"] = torch.randn(1, 100, 8)
    with pytest.raises(ImporterError, match="positions are not the sinusoids"):
        values(state, "tslib", "transformer")


@pytest.mark.parametrize("norm", ["batch", "layer"])
@pytest.mark.parametrize("source", ["tslib", "tfb"])
def test_patchtst(source: str, norm: str) -> None:
    layout = published.layout(source, "patchtst", final_norm=norm)
    state = published.publish(published.make("patchtst", final_norm=norm), layout)
    assert recognise(state, source, "patchtst").layout is layout
    told = {**SIZES, "patch_len": 6, "pred_len": 6, "final_norm": norm, "positions": "sinusoidal"}
    assert values(state, source, "patchtst") == told


@pytest.mark.parametrize("learned", [False, True])
def test_table_of_positions(learned: bool) -> None:
    layout = published.layout("tslib", "patchtst", final_norm="batch")
    kind = "learned" if learned else "sinusoidal"
    model = published.make("patchtst", positions=kind)
    state = published.publish(model, layout)
    table = torch.randn(1, 100, 8) if learned else sinusoids(100, 8)[None]
    if learned:
        table[0, :8] = state[POSITIONS]
    state[POSITIONS] = table
    told = values(state, "tslib", "patchtst")
    assert told["positions"] == kind
    told |= {"seq_len": 24, "stride": 3, "padding_patch": "end"}
    prepared = published.entry("tslib", "patchtst").prepare(state, told)
    other = published.filled(model, layout, prepared)
    history = published.inputs(model)
    assert torch.equal(other(*history), model(*history))


def test_tfb_fixes_the_label_length() -> None:
    fix = CODE_BASES["tfb"].fix
    assert fix({"enc_in": 3, "seq_len": 24, "pred_len": 6}) == {"label_len": 12}
    assert fix({"enc_in": 1, "seq_len": 24, "pred_len": 6}) == {"label_len": 6}
    assert fix({"enc_in": 1}) == fix({}) == {}


def test_keys_of_autoformer() -> None:
    layout = published.layout("tslib", "autoformer", embed="timeF")
    published_as = {
        "encoder_layers.1.attention.query.weight": (
            "encoder.attn_layers.1.attention.query_projection.weight"
        ),
        "decoder_layers.0.trend_projection.convolution.weight": (
            "decoder.layers.0.projection.weight"
        ),
    }
    assert {name: layout.original(name)[0] for name in published_as} == published_as
    assert layout.ignores("enc_embedding.position_embedding.pe")
    assert not layout.ignores("decoder.layers.0.projection.weight")


@pytest.mark.parametrize("name", LINEAR)
def test_dlinear(name: str) -> None:
    case = golden.case(name)
    individual = int(name.endswith("individual"))
    told = values(read_state(case.checkpoint), "tslib", "dlinear")
    assert told == {
        "seq_len": case.arguments["seq_len"],
        "pred_len": case.arguments["pred_len"],
        "individual": individual,
        **({"enc_in": 7} if individual else {}),
    }
    asked = required(*recognise(read_state(case.checkpoint), "tslib", "dlinear")[1:], {})
    assert asked == ["moving_avg", "individual"]


@pytest.mark.parametrize("name", INVERTED)
def test_itransformer(name: str) -> None:
    case = golden.case(name)
    told = values(read_state(case.checkpoint), "tslib", "itransformer")
    names = ("seq_len", "pred_len", "d_model", "d_ff", "e_layers")
    assert told == {name: case.arguments[name] for name in names}


@pytest.mark.parametrize("name", [*LINEAR, *INVERTED])
def test_forecasts_of_the_published_code(name: str) -> None:
    case = golden.case(name)
    with torch.inference_mode():
        forecast = case.model(*case.inputs("io"))
    atol = case.tolerance["recommended_atol"]
    np.testing.assert_allclose(forecast, case.arrays("io")["out"], rtol=0, atol=atol)


def calendar_tokens(**given: object) -> Arguments:
    arguments = {name: Argument(value, "a.sh") for name, value in given.items()}
    published.entry("tslib", "itransformer").derive(arguments, {}, CODE_BASES["tslib"])
    return arguments


@pytest.mark.parametrize(("freq", "unit"), [("h", "h"), ("t", "min"), ("15min", "min"), ("b", "B")])
def test_calendar_features_as_tokens(freq: str, unit: str) -> None:
    found = calendar_tokens(marks=1, embed="timeF", freq=freq)
    assert found["calendar"] == (calendar(unit, "scaled"), "a.sh")


def test_no_calendar_features_as_tokens() -> None:
    assert "calendar" not in calendar_tokens(marks=0, embed="fixed", freq="h")
    assert "calendar" not in calendar_tokens(marks=1, freq="h")


@pytest.mark.parametrize(
    ("embed", "freq", "message"),
    [("fixed", "h", r"embed fixed by a\.sh: .* timeF only"), ("timeF", "x", r"freq x by a\.sh: ")],
)
def test_calendar_features_that_cannot_be_read(embed: str, freq: str, message: str) -> None:
    with pytest.raises(ImporterError, match=message):
        calendar_tokens(marks=1, embed=embed, freq=freq)


def test_whether_calendar_features_are_tokens_is_asked_for() -> None:
    entry, layout = (
        published.entry("tslib", "itransformer"),
        published.layout("tslib", "itransformer"),
    )
    marks = {"marks", "embed", "freq"}
    assert marks <= set(required(entry, layout, {}))
    assert not marks - {"marks"} & set(required(entry, layout, {"marks": Argument(0, "x")}))
