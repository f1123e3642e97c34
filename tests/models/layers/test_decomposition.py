import pytest
import torch

from foretell.models.layers.decomposition import MovingAverage, SeriesDecomposition


def test_moving_average_by_hand() -> None:
    series = torch.tensor([1.0, 2.0, 6.0, 3.0])[None, :, None]
    # The first and the last value stand in for what lies outside.
    expected = torch.tensor([4 / 3, 3.0, 11 / 3, 4.0])
    torch.testing.assert_close(MovingAverage(3)(series)[0, :, 0], expected)


@pytest.mark.parametrize("kernel", [1, 5, 25])
def test_parts_add_up(kernel: int) -> None:
    series = torch.randn(2, 12, 3)
    seasonal, trend = SeriesDecomposition(kernel)(series)
    assert trend.shape == series.shape
    torch.testing.assert_close(seasonal + trend, series)


def test_constant_is_all_trend() -> None:
    seasonal, trend = SeriesDecomposition(25)(torch.full((1, 10, 2), 3.0))
    torch.testing.assert_close(seasonal, torch.zeros(1, 10, 2))
    torch.testing.assert_close(trend, torch.full((1, 10, 2), 3.0))


def test_kernel_of_one_leaves_nothing_seasonal() -> None:
    series = torch.randn(1, 5, 1)
    assert torch.equal(SeriesDecomposition(1)(series)[1], series)


def test_channels_do_not_mix() -> None:
    series = torch.randn(1, 20, 2)
    trend = MovingAverage(5)(series)
    for channel in range(2):
        part = slice(channel, channel + 1)
        torch.testing.assert_close(trend[..., part], MovingAverage(5)(series[..., part]))
