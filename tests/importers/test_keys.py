import pytest
import torch

from foretell.importers.errors import ImporterError
from foretell.importers.keys import KeyMap, load_weights, rows, unwrap
from tests.importers import published

KEYS = published.keys("autoformer")
MODEL = published.make("autoformer")
STATE = published.publish(MODEL, KEYS)
CONV = "encoder.attn_layers.0.conv1.weight"


def test_rows_of_a_table() -> None:
    table = """
    conv1.*    expand.*
    norm.1.**  norm.**
    scale      -
    W_pos      positions
    """
    found = dict(rows(table, "layers.{layer}.", "ours."))
    norm = ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")
    assert found == {
        "layers.{layer}.conv1.weight": "ours.expand.weight",
        "layers.{layer}.conv1.bias": "ours.expand.bias",
        **{f"layers.{{layer}}.norm.1.{part}": f"ours.norm.{part}" for part in norm},
        "layers.{layer}.scale": None,
        "layers.{layer}.W_pos": "ours.positions",
    }


@pytest.mark.parametrize("form", published.FORMS)
def test_every_key_is_known_and_loaded(form: str) -> None:
    keys, model = published.keys(form), published.make(form)
    state = published.publish(model, keys)
    assert all(keys.knows(key) and not keys.ignores(key) for key in state)
    torch.manual_seed(99)
    other = model.config.build().eval()
    load_weights(other, keys, state)
    assert torch.equal(published.forecast(other), published.forecast(model))
    halves = {key: each.half() if each.is_floating_point() else each for key, each in state.items()}
    load_weights(other, keys, halves)
    assert {weight.dtype for weight in other.parameters()} == {torch.float32}
    torch.testing.assert_close(
        published.forecast(other), published.forecast(model), atol=0.05, rtol=0
    )


@pytest.mark.parametrize("key", ["", "encoder", "encoder.attn_layers.x.conv1.weight", "fc.weight"])
def test_unknown_key(key: str) -> None:
    assert not KEYS.knows(key)
    assert not KEYS.ignores(key)
    with pytest.raises(KeyError):
        KEYS.original("other.weight")


def test_optional_keys() -> None:
    load_weights(MODEL, KEYS, STATE | {"enc_embedding.position_embedding.pe": torch.ones(1, 9, 8)})
    # Counters, which old versions of torch did not write.
    keys, model = published.keys("patchtst"), published.make("patchtst")
    state = published.publish(model, keys)
    assert state.pop("encoder.norm.1.num_batches_tracked") is not None
    load_weights(model, keys, state)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({CONV: None}, f"not the keys of this Autoformer:\n  missing (1):\n    {CONV} [12, 8]"),
        (
            {CONV: None, f"{CONV}_old": STATE[CONV]},
            f"missing (1):\n    {CONV} [12, 8]: renamed to {CONV}_old?\n"
            f"  unexpected (1):\n    {CONV}_old [12, 8, 1]",
        ),
        (
            {CONV: STATE[CONV].transpose(0, 1)},
            f"of another shape (1):\n    {CONV} is [8, 12], expected [12, 8]: transposed?",
        ),
        ({CONV: torch.ones(13, 8, 1)}, f"{CONV} is [13, 8], expected [12, 8]"),
        ({CONV: torch.ones(12, 8, 3)}, f"{CONV} is [12, 8, 3], expected [12, 8]"),
        (dict.fromkeys(list(STATE)[1:]), f"… and {len(STATE) - 1 - 8} more"),
        ({CONV: STATE[CONV].int()}, f"{CONV} is of type int32"),
    ],
)
def test_report_of_keys(changes: dict[str, torch.Tensor | None], message: str) -> None:
    before = {name: tensor.clone() for name, tensor in MODEL.state_dict().items()}
    changed = {key: None if each is None else each + 1 for key, each in STATE.items()} | changes
    state = {key: each for key, each in changed.items() if each is not None}
    with pytest.raises(ImporterError) as refused:
        load_weights(MODEL, KEYS, state)
    assert message in str(refused.value)
    assert all(torch.equal(before[name], tensor) for name, tensor in MODEL.state_dict().items())


SMALL = KeyMap(
    "model",
    rows("model.layers.{n}.weight a\nmodel.layers.{n}.bias b\nhead.weight c"),
)
WRAPPED = {
    key: torch.ones(2)
    for key in ("model.layers.0.weight", "model.layers.0.bias", "head.weight", "embed.weight")
}


@pytest.mark.parametrize("prefix", ["", "model.", "module._orig_mod.", "net.", "a.b.c.d."])
def test_prefix_of_all_keys_is_taken_away(prefix: str) -> None:
    maps = [KeyMap("other", rows("weight a")), SMALL]
    wrapped = {prefix + key: each for key, each in WRAPPED.items()}
    assert list(unwrap(wrapped, maps)) == list(WRAPPED)
    # Keys beside the model are kept, and the counter of an average is not.
    beside = {"criterion.weight": torch.ones(1), "n_averaged": torch.tensor(3)}
    found = list(unwrap(wrapped | beside, maps))
    assert found == [*WRAPPED, "criterion.weight", *["n_averaged"] * (not prefix)]


def test_keys_of_other_models_are_unchanged() -> None:
    foreign = {f"encoder.{place}.weight": torch.ones(1) for place in range(3)}
    foreign |= {f"encoder.{place}.gate": torch.ones(1) for place in range(3)}
    assert list(unwrap(foreign, [KeyMap("other", rows("weight a"))])) == list(foreign)


def test_two_models_are_refused() -> None:
    both = {f"{name}.{key}": each for name in ("net", "ema") for key, each in WRAPPED.items()}
    with pytest.raises(ImporterError, match=r"holds 2 models, net\.\*, ema\.\*; save the state"):
        unwrap(both, [SMALL])
