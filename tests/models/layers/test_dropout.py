import pytest
import torch

from foretell.models.layers.dropout import Dropout, drop


@pytest.mark.parametrize("probability", [0.05, 0.3, 0.9])
def test_a_share_is_dropped_and_the_mean_stays(probability: float) -> None:
    torch.manual_seed(0)
    values = torch.full((100, 1003), 2.0, requires_grad=True)
    found = drop(values, probability, training=True)
    assert (found == 0).float().mean().item() == pytest.approx(probability, abs=0.01)
    assert found.mean().item() == pytest.approx(2, rel=0.03)
    kept = found[found != 0]
    assert torch.equal(kept, kept[:1].expand(len(kept)))
    found.sum().backward()
    assert values.grad is not None
    torch.testing.assert_close(values.grad * 2, found.detach())


def test_what_is_dropped_is_drawn_by_the_seed() -> None:
    draws = []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        draws.append(drop(torch.ones(50), 0.5, training=True))
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2])


def test_nothing_and_all() -> None:
    values, layer = torch.randn(3, 5), Dropout(0.5)
    assert torch.equal(layer.eval()(values), values)
    assert torch.equal(drop(values, 0.0, training=True), values)
    assert not drop(values, 1.0, training=True).any()
    assert not torch.equal(layer.train()(values), values)


def test_half_precision_stays() -> None:
    assert drop(torch.ones(9, dtype=torch.bfloat16), 0.5, training=True).dtype == torch.bfloat16
