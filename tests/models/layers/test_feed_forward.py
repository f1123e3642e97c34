import pytest
import torch
from torch.nn import functional

from foretell.models.layers.feed_forward import FeedForward


@pytest.mark.parametrize("activation", ["gelu", "relu"])
def test_two_maps_with_an_activation_between(activation: str) -> None:
    layer = FeedForward(4, 8, activation=activation, dropout=0.0)  # type: ignore[arg-type]
    tokens = torch.randn(2, 5, 4)
    function = getattr(functional, activation)
    hidden = function(tokens @ layer.expand.weight.T + layer.expand.bias)
    expected = hidden @ layer.contract.weight.T + layer.contract.bias
    torch.testing.assert_close(layer(tokens), expected)


def test_gelu_is_the_exact_one() -> None:
    layer = FeedForward(1, 1, activation="gelu", dropout=0.0)
    value = torch.tensor([[[0.7]]])
    exact = 0.7 * 0.5 * (1 + torch.erf(torch.tensor(0.7 / 2**0.5)))
    torch.testing.assert_close(layer.activation(value)[0, 0, 0], exact)


def test_without_biases() -> None:
    layer = FeedForward(4, 8, activation="relu", dropout=0.0, bias=False)
    assert set(layer.state_dict()) == {"expand.weight", "contract.weight"}


def test_dropout_acts_in_training_only() -> None:
    layer = FeedForward(4, 64, activation="gelu", dropout=0.5)
    tokens = torch.randn(1, 8, 4)
    assert not torch.equal(layer(tokens), layer(tokens))
    layer.eval()
    assert torch.equal(layer(tokens), layer(tokens))
