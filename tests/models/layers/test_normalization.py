import torch
from torch.nn import functional

from foretell.models.layers.normalization import SeasonalLayerNorm, TokenBatchNorm


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
