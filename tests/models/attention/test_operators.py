import torch

from foretell.models.attention.operators import maximum, repeated


def test_the_maximum_of_each_row_has_no_gradient() -> None:
    rows = torch.tensor([[3.0, -1.0, 2.0], [-5.0, -4.0, -6.0]], requires_grad=True)
    found = maximum(rows)
    assert found.tolist() == [[3.0], [-4.0]]
    assert not found.requires_grad


def test_numbers_are_repeated_as_they_are() -> None:
    numbers = torch.tensor([[4, 7]])
    found = repeated(numbers, 3)
    assert torch.equal(found, numbers[..., None].expand(1, 2, 3))
    assert found.dtype == torch.int64
