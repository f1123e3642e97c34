import pytest
import torch

from foretell.importers.errors import ImporterError
from foretell.importers.layouts import Layout, rows
from foretell.importers.wrapping import unwrap

LAYOUT = Layout(
    "model",
    {},
    rows("""
        model.layers.{n}.weight a width
        model.layers.{n}.bias b width
        head.weight c width
    """),
)
OTHER = Layout("other", {}, rows("weight a width"))
STATE = {
    key: torch.ones(2)
    for key in ("model.layers.0.weight", "model.layers.0.bias", "head.weight", "embed.weight")
}


@pytest.mark.parametrize("prefix", ["", "model.", "module._orig_mod.", "net.", "a.b.c.d."])
def test_a_prefix_of_all_keys_is_taken_away(prefix: str) -> None:
    found = unwrap({prefix + key: each for key, each in STATE.items()}, [OTHER, LAYOUT])
    assert list(found) == list(STATE)


def test_what_lies_beside_the_model_stays() -> None:
    wrapped = {f"net.{key}": each for key, each in STATE.items()}
    found = unwrap(wrapped | {"criterion.weight": torch.ones(1)}, [LAYOUT])
    assert list(found) == [*STATE, "criterion.weight"]


def test_the_counter_of_an_average_does_not() -> None:
    wrapped = {f"module.{key}": each for key, each in STATE.items()}
    assert list(unwrap({"n_averaged": torch.tensor(3)} | wrapped, [LAYOUT])) == list(STATE)


def test_keys_that_are_of_something_else_stay() -> None:
    foreign = {f"encoder.{place}.weight": torch.ones(1) for place in range(3)}
    foreign |= {f"encoder.{place}.gate": torch.ones(1) for place in range(3)}
    assert list(unwrap(foreign, [OTHER])) == list(foreign)


def test_two_models_are_refused() -> None:
    both = {f"{name}.{key}": each for name in ("net", "ema") for key, each in STATE.items()}
    with pytest.raises(ImporterError, match=r"holds 2 models, net\.\*, ema\.\*; save the state"):
        unwrap(both, [LAYOUT])
