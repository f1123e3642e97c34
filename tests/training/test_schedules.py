import pytest
import torch

from foretell.training.schedules import schedule_of


def rates(name: str, peak: float, epochs: int, per_epoch: int, warm_up: float = 0.1) -> list[float]:
    weight = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.Adam([weight], lr=peak)
    steps = epochs * per_epoch
    scheduler = schedule_of(
        name,  # type: ignore[arg-type]
        optimizer,
        steps=steps,
        steps_per_epoch=per_epoch,
        warm_up=warm_up,
    )
    found = []
    for _ in range(steps):
        found.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return found


def test_cosine_rises_and_falls_to_zero() -> None:
    found = rates("cosine", 0.5, 10, 10)
    assert found[0] == pytest.approx(0.05)
    assert found[9] == found[10] == 0.5
    assert found[10:] == sorted(found[10:], reverse=True)
    assert 0 < found[-1] < 0.001


def test_one_cycle_rises_for_its_share() -> None:
    found = rates("one-cycle", 0.5, 10, 10, warm_up=0.3)
    assert found[0] == pytest.approx(0.5 / 25)
    assert found.index(max(found)) == 29
    assert found[-1] == pytest.approx(0.5 / 25e4)


@pytest.mark.parametrize(
    ("name", "by_epoch"),
    [
        ("constant", [1e-4] * 6),
        # What the published code sets after an epoch is that of the next.
        ("halving", [1e-4, 1e-4, 5e-5, 2.5e-5, 1.25e-5, 6.25e-6]),
        ("type2", [1e-4, 1e-4, 5e-5, 5e-5, 1e-5, 1e-5]),
        ("type3", [1e-4, 1e-4, 1e-4, 1e-4, 9e-5, 8.1e-5]),
    ],
)
def test_schedules_by_epoch(name: str, by_epoch: list[float]) -> None:
    expected = [rate for rate in by_epoch for _ in range(3)]
    assert rates(name, 1e-4, 6, 3) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("name", "epochs", "warm_up"),
    [
        ("cosine", 1, 0.0),
        ("cosine", 1, 0.1),
        ("one-cycle", 10, 0.1),
        ("one-cycle", 5, 0.2),
        ("one-cycle", 2, 0.5),
    ],
)
def test_a_rise_of_a_single_step_begins_at_the_peak(name: str, epochs: int, warm_up: float) -> None:
    found = rates(name, 0.5, epochs, 1, warm_up)
    assert found[0] == pytest.approx(0.5)
    assert found == sorted(found, reverse=True)
