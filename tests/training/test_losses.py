from typing import Any

import pytest
import torch

from foretell.training.losses import judge_of, loss_of, pinball

FORECAST, TARGET = torch.tensor([0.0, 0.0, 0.0]), torch.tensor([1.0, -2.0, 4.0])


@pytest.mark.parametrize(
    ("name", "expected", "judged"),
    [
        ("mse", 21 / 3, 21 / 3),
        ("mae", 7 / 3, 7 / 3),
        # Half of the square up to 2, then 2 * (|x| - 1).
        ("huber", (0.5 + 2 + 6) / 3, 21 / 3),
        ("quantile", (0.9 * 1 + 0.1 * 2 + 0.9 * 4) / 3, 4.7 / 3),
    ],
)
def test_losses_and_what_an_epoch_is_judged_by(name: Any, expected: float, judged: float) -> None:
    loss, judge = loss_of(name, huber_delta=2, quantile=0.9), judge_of(name, quantile=0.9)
    assert loss(FORECAST, TARGET).item() == pytest.approx(expected)
    assert judge(FORECAST, TARGET).item() == pytest.approx(judged)


def test_the_best_constant_is_the_quantile() -> None:
    target = torch.arange(101.0)
    losses = [pinball(torch.full((101,), c), target, quantile=0.9) for c in target]
    assert int(torch.stack(losses).argmin()) == 90
