import torch

from foretell.models.baselines import last_value, seasonal_naive


def test_last_value_repeats() -> None:
    history = torch.tensor([[[1.0, 10.0], [2.0, 20.0]]])
    assert last_value(history, 3).tolist() == [[[2, 20]] * 3]


def test_seasonal_naive_repeats_the_last_season() -> None:
    history = torch.arange(5.0).reshape(1, 5, 1)
    assert seasonal_naive(history, 7, 3).flatten().tolist() == [2, 3, 4, 2, 3, 4, 2]
    assert seasonal_naive(history, 2, 3).flatten().tolist() == [2, 3]
