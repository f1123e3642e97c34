import pytest
import torch

from foretell.importers.errors import ImporterError
from foretell.importers.weights import load_weights
from tests.importers import published
from tests.importers.published import filled, inputs

LAYOUT = published.layout("tslib", "autoformer", embed="timeF")
MODEL = published.make("autoformer")
STATE = published.publish(MODEL, LAYOUT)
CONV = "encoder.attn_layers.0.conv1.weight"


@pytest.mark.parametrize("form", ["autoformer", "transformer", "patchtst", "official"])
def test_all_weights_arrive(form: str) -> None:
    source, architecture = ("patchtst",) * 2 if form == "official" else ("tslib", form)
    layout = published.layout(source, architecture)
    model = published.make(form)
    other = filled(model, layout, published.publish(model, layout))
    assert torch.equal(other(*inputs(model)), model(*inputs(model)))


def test_half_precision_becomes_single() -> None:
    layout = published.layout("tslib", "transformer")
    model = published.make("transformer")
    state = {key: tensor.half() for key, tensor in published.publish(model, layout).items()}
    other = filled(model, layout, state)
    assert {weight.dtype for weight in other.parameters()} == {torch.float32}
    torch.testing.assert_close(other(*inputs(model)), model(*inputs(model)), atol=0.05, rtol=0)


def test_refuses_before_it_fills() -> None:
    layout = published.layout("tslib", "patchtst", final_norm="batch")
    model = published.make("patchtst")
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    state = {key: tensor + 1 for key, tensor in published.publish(model, layout).items()}
    del state["head.linear.bias"]
    with pytest.raises(ImporterError, match=r"missing \(1\):\n    head\.linear\.bias \[6\]"):
        load_weights(model, layout, state)
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())


def report(state: dict[str, torch.Tensor]) -> str:
    with pytest.raises(ImporterError) as refused:
        load_weights(MODEL, LAYOUT, state)
    return str(refused.value)


def test_complete_state() -> None:
    load_weights(MODEL, LAYOUT, STATE)
    # Fixed tables carry nothing and may be there or not.
    table = {"enc_embedding.position_embedding.pe": torch.ones(1, 5000, 8)}
    load_weights(MODEL, LAYOUT, STATE | table)


def test_missing_key() -> None:
    state = {key: tensor for key, tensor in STATE.items() if key != CONV}
    assert report(state) == (
        f"not the keys of this Autoformer:\n  missing (1):\n    {CONV} [12, 8, 1]"
    )


def test_renamed_key() -> None:
    state = {key.replace(CONV, f"{CONV}_old"): tensor for key, tensor in STATE.items()}
    text = report(state)
    assert f"missing (1):\n    {CONV} [12, 8, 1]: renamed to {CONV}_old?" in text
    assert f"unexpected (1):\n    {CONV}_old [12, 8, 1]" in text


def test_transposed_key() -> None:
    text = report(STATE | {CONV: STATE[CONV].transpose(0, 1)})
    assert (
        f"of another shape (1):\n    {CONV} is [8, 12, 1], expected [12, 8, 1]: transposed?" in text
    )


def test_key_of_another_size() -> None:
    text = report(STATE | {CONV: torch.ones(13, 8, 1)})
    assert text.endswith(f"{CONV} is [13, 8, 1], expected [12, 8, 1]")


def test_long_lists_are_cut() -> None:
    text = report({CONV: STATE[CONV]})
    assert f"missing ({len(STATE) - 1}):" in text
    assert f"… and {len(STATE) - 1 - 8} more" in text


def test_counters_of_old_torch_may_be_missing() -> None:
    layout = published.layout("tslib", "patchtst", final_norm="batch")
    model = published.make("patchtst")
    state = published.publish(model, layout)
    assert state.pop("encoder.norm.1.num_batches_tracked") is not None
    load_weights(model, layout, state)
