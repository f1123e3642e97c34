import pytest
import torch

from foretell.training.losses import judge_of, loss_of, pinball

FORECAST, TARGET = torch.tensor([0.0, 0.0, 0.0]), torch.tensor([1.0, -2.0, 4.0])


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("mse", 21 / 3),
        ("mae", 7 / 3),
        # Half of the square up to 2, then 2 * (|x| - 1).
        ("huber", (0.5 + 2 + 6) / 3),
        ("quantile", (0.9 * 1 + 0.1 * 2 + 0.9 * 4) / 3),
    ],
)
def test_losses_by_hand(name: str, expected: float) -> None:
    loss = loss_of(name, huber_delta=2, quantile=0.9)  # type: ignore[arg-type]
    assert loss(FORECAST, TARGET).item() == pytest.approx(expected)


def test_the_best_constant_is_the_quantile() -> None:
    target = torch.arange(101.0)
    losses = [pinball(torch.full((101,), c), target, quantile=0.9) for c in target]
    assert int(torch.stack(losses).argmin()) == 90


@pytest.mark.parametrize(
    ("name", "expected"), [("mse", 7), ("huber", 7), ("mae", 7 / 3), ("quantile", 4.7 / 3)]
)
def test_what_an_epoch_is_judged_by(name: str, expected: float) -> None:
    judge = judge_of(name, quantile=0.9)  # type: ignore[arg-type]
    assert judge(FORECAST, TARGET).item() == pytest.approx(expected)
