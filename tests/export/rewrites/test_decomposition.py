import pytest
import torch

from foretell.export.rewrites import inference_form
from foretell.export.rewrites.decomposition import ServedDecomposition, average_matrix
from foretell.models.architectures.dlinear import DLinearConfig
from foretell.models.layers.decomposition import MovingAverage, SeriesDecomposition

# Short ones as one matrix, long ones in blocks, with and without a rest.
LENGTHS = (5, 26, 96, 97, 144, 211, 720)


@pytest.mark.parametrize("kernel", [1, 3, 25, 51])
@pytest.mark.parametrize("length", LENGTHS)
def test_equals_the_decomposition(kernel, length, float64, equal):
    series = torch.randn(2, length, 5)
    plain = SeriesDecomposition(kernel)(series)
    for found, expected in zip(
        ServedDecomposition(kernel, length, torch.float64)(series), plain, strict=True
    ):
        equal(found, expected)
    seasonal, itself = ServedDecomposition(kernel, length, torch.float64, averaged=False)(series)
    equal(seasonal, plain[0])
    assert itself is series


def test_long_series_are_multiplied_in_blocks():
    dense = ServedDecomposition(25, 96, torch.float32)
    blocks = ServedDecomposition(25, 720, torch.float32)
    assert dense.matrix.shape == (96, 96)
    assert blocks.matrix.shape == (24, 48)


@pytest.mark.parametrize("kernel", [1, 3, 25])
def test_average_matrix(kernel, equal):
    series = torch.randn(2, 30, 4, dtype=torch.float64)
    equal(average_matrix(kernel, 30) @ series, MovingAverage(kernel)(series))


def test_a_model_of_another_type_than_the_usual_one_has_a_form() -> None:
    torch.manual_seed(0)
    model = DLinearConfig(channels=2, context=30, horizon=4, moving_average=7).build().double()
    form = inference_form(model)
    history = torch.randn(3, 30, 2, dtype=torch.float64)
    torch.testing.assert_close(form(history), model(history), rtol=0, atol=1e-12)
    assert any(isinstance(module, ServedDecomposition) for module in form.modules())
