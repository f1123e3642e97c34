import pytest
import torch

from foretell.importers.code_base import Architecture, CodeBase
from foretell.importers.errors import ImporterError
from foretell.importers.infer import infer, recognise
from foretell.importers.layouts import Layout
from foretell.importers.registry import CODE_BASES
from tests.importers import published


def values(state: dict[str, torch.Tensor]) -> dict[str, object]:
    """What the state of an Autoformer tells."""
    entry = published.entry("tslib", "autoformer")
    found = infer(state, entry, published.layout("tslib", "autoformer", embed="timeF"))
    return {name: argument.value for name, argument in found.arguments.items()}


def test_one_wrong_tensor_does_not_change_a_size() -> None:
    layout = published.layout("tslib", "autoformer", embed="timeF")
    state = published.publish(published.make("autoformer"), layout)
    for key, tensor in state.items():
        if tensor.ndim > 1:
            damaged = {**state, key: tensor.transpose(0, 1)}
            assert values(damaged) == values(state), key
        missing = {other: state[other] for other in state if other != key}
        assert values(missing) == values(state), key


def test_a_layer_of_a_wild_number_counts_once() -> None:
    layout = published.layout("tslib", "autoformer", embed="timeF")
    state = published.publish(published.make("autoformer"), layout)
    state["encoder.attn_layers.999999999.conv1.weight"] = torch.ones(12, 8, 1)
    assert values(state)["e_layers"] == 3


@pytest.mark.parametrize(
    ("source", "architecture", "message"),
    [
        (
            "autoformer",
            "patchtst",
            "autoformer patchtst is not read; use .* --arch autoformer or transformer",
        ),
        (
            "patchtst",
            "transformer",
            "patchtst transformer is not read; use --from patchtst --arch patchtst",
        ),
    ],
)
def test_refuses_what_the_code_base_does_not_have(
    source: str, architecture: str, message: str
) -> None:
    with pytest.raises(ImporterError, match=message):
        recognise({"a": torch.ones(1)}, source, architecture)


def test_refuses_unknown_keys() -> None:
    with pytest.raises(ImporterError, match=r"none of its 2 keys is known: fc\.weight, fc\.bias"):
        recognise({"fc.weight": torch.ones(1), "fc.bias": torch.ones(1)}, "tslib", "autoformer")


ENTRIES = [
    pytest.param(code, each, layout, id=f"{code.name} {layout.title} {dict(layout.arguments)}")
    for code in CODE_BASES.values()
    for each in code.architectures
    for layout in each.layouts
]


def state_of(layout: Layout) -> dict[str, torch.Tensor]:
    numbers = dict.fromkeys(layout.sizes, 0)
    return {row.theirs.format(**numbers): torch.ones(1) for row in layout.rows}


@pytest.mark.parametrize(("code", "architecture", "layout"), ENTRIES)
def test_every_layout_is_found(code: CodeBase, architecture: Architecture, layout: Layout) -> None:
    found = recognise(state_of(layout), code.name, architecture.name)
    assert found == (code, architecture, layout)


@pytest.mark.parametrize(("code", "architecture", "layout"), ENTRIES)
def test_refuses_the_keys_of_another_architecture(
    code: CodeBase, architecture: Architecture, layout: Layout
) -> None:
    others = [each for each in CODE_BASES["tslib"].architectures if layout not in each.layouts]
    for other in others:
        with pytest.raises(
            ImporterError, match=rf"--from .*{code.name}.* --arch {architecture.name}"
        ):
            recognise(state_of(layout), "tslib", other.name)


def test_keys_of_one_code_base_tell_it() -> None:
    state = state_of(published.layout("patchtst", "patchtst"))
    assert recognise(state, None, "patchtst").code.name == "patchtst"


def test_asks_for_the_code_base_where_several_have_the_keys() -> None:
    state = state_of(published.layout("tslib", "transformer"))
    with pytest.raises(ImporterError, match="--from tslib or autoformer or tfb --arch transformer"):
        recognise(state, None, "transformer")


def test_arguments_that_one_code_base_has_tell_it() -> None:
    state = state_of(published.layout("tslib", "transformer"))
    assert recognise(state, None, "transformer", {"task_name", "d_ff"}).code.name == "tslib"


def test_asks_for_the_architecture_that_nothing_names() -> None:
    # An Informer without its convolutions has the keys of a Transformer.
    with pytest.raises(
        ImporterError, match="do not tell what it is: use --from tslib --arch trans"
    ):
        recognise(state_of(published.layout("tslib", "transformer")), "tslib", None)
