import pytest
import torch

from foretell.models.importers.errors import ImporterError
from foretell.models.importers.report import check_keys
from tests.models.importers import published

LAYOUT = published.layout("tslib", "autoformer", embed="timeF")
MODEL = published.make("autoformer")
STATE = published.publish(MODEL, LAYOUT)
CONV = "encoder.attn_layers.0.conv1.weight"


def report(state: dict[str, torch.Tensor]) -> str:
    with pytest.raises(ImporterError) as refused:
        check_keys(LAYOUT, state, MODEL.state_dict())
    return str(refused.value)


def test_complete_state() -> None:
    check_keys(LAYOUT, STATE, MODEL.state_dict())
    # Fixed tables carry nothing and may be there or not.
    table = {"enc_embedding.position_embedding.pe": torch.ones(1, 5000, 8)}
    check_keys(LAYOUT, STATE | table, MODEL.state_dict())


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
    check_keys(layout, state, model.state_dict())
