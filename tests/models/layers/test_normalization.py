import pytest
import torch
from torch.nn import functional

from foretell.models.layers.normalization import InstanceNorm, SeasonalLayerNorm, TokenBatchNorm


def test_seasonal_norm_has_no_mean_over_time() -> None:
    layer = SeasonalLayerNorm(5)
    torch.nn.init.uniform_(layer.norm.weight)
    torch.nn.init.uniform_(layer.norm.bias)
    tokens = torch.randn(2, 9, 5)
    found = layer(tokens)
    torch.testing.assert_close(found.mean(1), torch.zeros(2, 5), atol=1e-6, rtol=0)
    plain = functional.layer_norm(tokens, (5,), layer.norm.weight)
    torch.testing.assert_close(found, plain - plain.mean(1, keepdim=True))


def test_batch_norm_of_each_feature() -> None:
    layer = TokenBatchNorm(3)
    tokens = torch.randn(4, 6, 3) * 5 + 2
    normed = layer(tokens)
    torch.testing.assert_close(normed.mean((0, 1)), torch.zeros(3), atol=1e-5, rtol=0)
    torch.testing.assert_close(normed.var((0, 1), correction=0), torch.ones(3), atol=1e-4, rtol=0)


def test_batch_norm_in_evaluation_uses_what_it_saw() -> None:
    layer = TokenBatchNorm(2).eval()
    layer.norm.running_mean = torch.tensor([1.0, 2.0])
    layer.norm.running_var = torch.tensor([4.0, 9.0])
    tokens = torch.randn(2, 3, 2)
    expected = (tokens - torch.tensor([1.0, 2.0])) / torch.tensor([4.0, 9.0]).add(1e-5).sqrt()
    torch.testing.assert_close(layer(tokens), expected)
    torch.testing.assert_close(layer(tokens[:1]), layer(tokens)[:1])


@pytest.mark.parametrize("centre", ["mean", "last"])
@pytest.mark.parametrize("affine", [False, True])
def test_instance_norm_is_undone(centre: str, affine: bool) -> None:
    layer = InstanceNorm(3, centre=centre, affine=affine)  # type: ignore[arg-type]
    if layer.weight is not None and layer.bias is not None:
        torch.nn.init.uniform_(layer.weight, 0.5, 1.5)
        torch.nn.init.normal_(layer.bias)
    history = torch.randn(2, 20, 3) * 3 + 100
    normed, statistics = layer(history)
    torch.testing.assert_close(layer.reverse(normed, statistics), history)


def test_instance_norm_by_hand() -> None:
    history = torch.tensor([1.0, 3.0, 5.0])[None, :, None]
    spread = (8 / 3 + 1e-5) ** 0.5
    mean, _ = InstanceNorm(1)(history)
    torch.testing.assert_close(mean[0, :, 0], torch.tensor([-2.0, 0.0, 2.0]) / spread)
    last, _ = InstanceNorm(1, centre="last")(history)
    torch.testing.assert_close(last[0, :, 0], torch.tensor([-4.0, -2.0, 0.0]) / spread)


def test_instance_norm_of_a_constant_is_finite() -> None:
    layer = InstanceNorm(1)
    normed, statistics = layer(torch.full((1, 8, 1), 42.0))
    assert not normed.any()
    torch.testing.assert_close(layer.reverse(normed, statistics), torch.full((1, 8, 1), 42.0))


def test_a_zero_weight_is_undone_without_a_division_by_zero() -> None:
    layer = InstanceNorm(1, affine=True)
    assert layer.weight is not None
    torch.nn.init.zeros_(layer.weight)
    normed, statistics = layer(torch.randn(1, 8, 1))
    assert torch.isfinite(layer.reverse(normed, statistics)).all()
