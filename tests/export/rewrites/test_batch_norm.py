import torch
from torch import nn

from foretell.export.rewrites.batch_norm import AffineNorm
from foretell.models.layers.normalization import TokenBatchNorm


def test_equals_the_batch_norm_in_evaluation():
    plain = TokenBatchNorm(8).double()
    nn.init.uniform_(plain.norm.weight, 0.5, 2)
    nn.init.normal_(plain.norm.bias)
    plain.norm.running_mean.normal_()
    plain.norm.running_var.uniform_(0.1, 3)
    plain.eval()
    tokens = torch.randn(4, 6, 8, dtype=torch.float64)
    torch.testing.assert_close(AffineNorm(plain)(tokens), plain(tokens), rtol=1e-12, atol=1e-12)
