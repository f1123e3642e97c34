import pytest
import torch

from foretell.importers.infer import Inferred, infer, recognise
from tests.importers import published

SIZES = {"d_model": 8, "d_ff": 12, "e_layers": 2}
SCALE = "model.backbone.encoder.layers.{}.self_attn.sdp_attn.scale"


def inferred(state: dict[str, torch.Tensor]) -> Inferred:
    _, entry, layout = recognise(state, "patchtst", "patchtst")
    return infer(state, entry, layout)


@pytest.mark.parametrize("norm", ["batch", "layer"])
@pytest.mark.parametrize("individual", [0, 1])
@pytest.mark.parametrize("decomposition", [0, 1])
@pytest.mark.parametrize("affine", [0, 1])
def test_patchtst_of_its_paper(norm: str, individual: int, decomposition: int, affine: int) -> None:
    form = {"norm": norm, "individual": individual, "decomposition": decomposition}
    layout = published.layout("patchtst", "patchtst", **form, affine=affine)
    model = published.make(
        "official",
        norm=norm,
        individual=bool(individual),
        decomposition=5 if decomposition else None,
        affine=bool(affine),
    )
    state = published.publish(model, layout)
    assert recognise(state, "patchtst", "patchtst").layout is layout
    found = inferred(state)
    assert {name: argument.value for name, argument in found.arguments.items()} == {
        **SIZES,
        **form,
        "affine": affine,
        "patch_len": 6,
        "pred_len": 6,
        **({"enc_in": 3} if affine or individual else {}),
        **({"revin": 1} if affine else {}),
    }
    assert found.sizes["patches"] == 8


@pytest.mark.parametrize(("scale", "heads"), [(8**-0.5, 1), (4**-0.5, 2), (0.6, None), (0.0, None)])
def test_heads_of_the_stored_attention_scale(scale: float, heads: int | None) -> None:
    layout = published.layout("patchtst", "patchtst")
    state = published.publish(published.make("official"), layout)
    for i in range(2):
        state[SCALE.format(i)] = torch.tensor(scale)
    found = inferred(state).arguments.get("n_heads")
    assert (found.value if found else None) == heads


@pytest.mark.parametrize("factor", [1.0, 0.7, 2.0])
def test_trained_attention_scale_is_folded_into_the_query(factor: float) -> None:
    layout = published.layout("patchtst", "patchtst")
    model = published.make("official")
    state = published.publish(model, layout)
    for i in range(2):
        state[SCALE.format(i)] = torch.tensor(4**-0.5 * factor)
    values = {"d_model": 8, "n_heads": 2}
    state = dict(published.entry("patchtst", "patchtst").prepare(state, values))
    other = published.filled(model, layout, state)
    for layer in model.branches[0].layers:  # type: ignore[union-attr, index]
        layer.attention.query.weight.data *= factor
        layer.attention.query.bias.data *= factor
    history = published.inputs(model)
    torch.testing.assert_close(other(*history), model(*history))


def test_keys() -> None:
    layout = published.layout("patchtst", "patchtst", decomposition=1, individual=1, norm="batch")
    published_as = {
        "branches.1.heads.3.bias": "model_trend.head.linears.3.bias",
        "branches.0.layers.0.feed_forward_norm.norm.running_var": (
            "model_res.backbone.encoder.layers.0.norm_ffn.1.running_var"
        ),
    }
    assert {name: layout.original(name)[0] for name in published_as} == published_as
