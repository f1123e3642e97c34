import pytest
import torch

from foretell.bundle.calendar import Calendar
from foretell.bundle.frequency import Frequency
from foretell.models.importers.errors import ImporterError
from foretell.models.importers.infer import infer, recognise
from foretell.models.importers.layouts import LAYOUTS
from foretell.models.layers.embedding import sinusoids
from tests.models.importers import published

SIZES = {"d_model": 8, "d_ff": 12, "e_layers": 2}
SERIES = {**SIZES, "enc_in": 3, "c_out": 3, "d_layers": 1}


def values(state: dict[str, torch.Tensor], layout: object) -> dict[str, object]:
    return {name: known.value for name, known in infer(state, layout).facts.items()}  # type: ignore[arg-type]


def calendar(unit: str, encoding: str) -> Calendar:
    return Calendar.for_frequency(Frequency.parse(unit), encoding)  # type: ignore[arg-type]


@pytest.mark.parametrize("architecture", ["autoformer", "transformer"])
@pytest.mark.parametrize("unit", ["s", "min", "h", "D", "W", "M"])
def test_time_series_models(architecture: str, unit: str) -> None:
    scaled = calendar(unit, "scaled")
    layout = published.layout("tslib", architecture, embed="timeF")
    state = published.publish(published.make(architecture, calendar=scaled), layout)
    assert recognise(state, "tslib", architecture) is layout
    assert values(state, layout) == {**SERIES, "embed": "timeF"}
    assert infer(state, layout).calendar == scaled
    assert infer(state, layout).patches is None


@pytest.mark.parametrize("embed", ["learned", "fixed"])
@pytest.mark.parametrize("unit", ["h", "min"])
def test_calendar_tables(embed: str, unit: str) -> None:
    integers = calendar(unit, "integer")
    layout = published.layout("autoformer", "transformer", embed=embed)
    model = published.make("transformer", calendar=integers, embedding=embed)
    state = published.publish(model, layout)
    assert recognise(state, "autoformer", "transformer") is layout
    assert values(state, layout)["embed"] == embed
    assert infer(state, layout).calendar == integers


@pytest.mark.parametrize("norm", ["batch", "layer"])
@pytest.mark.parametrize("source", ["tslib", "tfb"])
def test_patchtst(source: str, norm: str) -> None:
    layout = published.layout(source, "patchtst", final_norm=norm)  # type: ignore[arg-type]
    state = published.publish(published.make("patchtst", final_norm=norm), layout)
    assert recognise(state, source, "patchtst") is layout  # type: ignore[arg-type]
    told = infer(state, layout)
    assert values(state, layout) == {**SIZES, "patch_len": 6, "pred_len": 6, "final_norm": norm}
    assert told.patches == 8
    assert told.calendar is None
    assert not told.learned_positions


@pytest.mark.parametrize("norm", ["batch", "layer"])
@pytest.mark.parametrize("individual", [0, 1])
@pytest.mark.parametrize("decomposition", [0, 1])
@pytest.mark.parametrize("affine", [0, 1])
def test_patchtst_of_its_paper(norm: str, individual: int, decomposition: int, affine: int) -> None:
    form = {"norm": norm, "individual": individual, "decomposition": decomposition}
    layout = published.layout("patchtst", "patchtst", **form)
    model = published.make(
        "official",
        norm=norm,
        individual=bool(individual),
        decomposition=5 if decomposition else None,
        affine=bool(affine),
    )
    state = published.publish(model, layout)
    assert recognise(state, "patchtst", "patchtst") is layout
    told = values(state, layout)
    assert told == {
        **SIZES,
        **form,
        "affine": affine,
        "patch_len": 6,
        "pred_len": 6,
        **({"enc_in": 3} if affine or individual else {}),
        **({"revin": 1} if affine else {}),
    }
    assert infer(state, layout).patches == 8


@pytest.mark.parametrize(("scale", "heads"), [(8**-0.5, 1), (4**-0.5, 2), (0.6, None), (0.0, None)])
def test_heads_of_the_stored_attention_scale(scale: float, heads: int | None) -> None:
    layout = published.layout("patchtst", "patchtst")
    state = published.publish(published.make("official"), layout)
    for i in range(2):
        key = f"model.backbone.encoder.layers.{i}.self_attn.sdp_attn.scale"
        state[key] = torch.tensor(scale)
    assert values(state, layout).get("n_heads") == heads


def test_one_wrong_tensor_does_not_change_a_size() -> None:
    layout = published.layout("tslib", "autoformer", embed="timeF")
    state = published.publish(published.make("autoformer"), layout)
    for key, tensor in state.items():
        if tensor.ndim > 1:
            damaged = {**state, key: tensor.transpose(0, 1)}
            assert values(damaged, layout) == values(state, layout), key
        missing = {other: state[other] for other in state if other != key}
        assert values(missing, layout) == values(state, layout), key


def test_a_layer_of_a_wild_number_counts_once() -> None:
    layout = published.layout("tslib", "autoformer", embed="timeF")
    state = published.publish(published.make("autoformer"), layout)
    state["encoder.attn_layers.999999999.conv1.weight"] = torch.ones(12, 8, 1)
    assert values(state, layout)["e_layers"] == 3


@pytest.mark.parametrize("learned", [False, True])
def test_table_of_positions(learned: bool) -> None:
    layout = published.layout("tslib", "patchtst")
    state = published.publish(published.make("patchtst"), layout)
    table = torch.randn(1, 100, 8) if learned else sinusoids(100, 8)[None]
    told = infer({**state, "patch_embedding.position_embedding.pe": table}, layout)
    assert told.learned_positions == learned


@pytest.mark.parametrize(
    ("source", "architecture", "message"),
    [
        ("autoformer", "patchtst", "thuml/Autoformer is read for --arch autoformer or transformer"),
        ("patchtst", "transformer", "yuqinie98/PatchTST is read for --arch patchtst"),
    ],
)
def test_refuses_what_the_code_base_does_not_have(
    source: str, architecture: str, message: str
) -> None:
    with pytest.raises(ImporterError, match=message):
        recognise({"a": torch.ones(1)}, source, architecture)  # type: ignore[arg-type]


def test_refuses_unknown_keys() -> None:
    with pytest.raises(ImporterError, match=r"none of its 2 keys is known: fc\.weight, fc\.bias"):
        recognise({"fc.weight": torch.ones(1), "fc.bias": torch.ones(1)}, "tslib", "autoformer")


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda each: f"{each.title} {dict(each.facts)}")
def test_refuses_the_keys_of_another_architecture(layout: object) -> None:
    form = "official" if layout.sources == ("patchtst",) else layout.architecture  # type: ignore[attr-defined]
    state = {
        row.theirs.format(e_layers=0, d_layers=0, enc_in=0): torch.ones(1)
        for row in layout.rows  # type: ignore[attr-defined]
    }
    others = {"autoformer": "transformer", "transformer": "patchtst", "patchtst": "autoformer"}
    expected = "--from patchtst" if form == "official" else "--from tslib or"
    with pytest.raises(ImporterError, match=f"{expected}.* --arch {layout.architecture}"):  # type: ignore[attr-defined]
        recognise(state, "tslib", others[layout.architecture])  # type: ignore[attr-defined]
