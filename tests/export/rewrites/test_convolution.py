import torch

from export.rewrites.convolution import NeighbourProjection
from models.layers.embedding import TokenEmbedding


def test_equals_the_circular_convolution():
    plain = TokenEmbedding(5, 8).double()
    series = torch.randn(3, 17, 5, dtype=torch.float64)
    found = NeighbourProjection(plain)(series)
    torch.testing.assert_close(found, plain(series), rtol=1e-12, atol=1e-12)
