import pytest
import torch

from export.rewrites.decomposition import MatrixAverage
from models.layers.decomposition import MovingAverage


@pytest.mark.parametrize("kernel", [1, 3, 25, 51])
@pytest.mark.parametrize("length", [26, 37, 96])
def test_equals_the_moving_average(kernel, length):
    plain = MovingAverage(kernel)
    rewritten = MatrixAverage(plain, length).double()
    series = torch.randn(2, length, 5, dtype=torch.float64)
    # The matrix itself is stored in float32.
    torch.testing.assert_close(rewritten(series), plain(series), rtol=0, atol=2e-6)
