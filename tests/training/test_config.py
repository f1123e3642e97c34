"""The settings of a training: what is accepted, losses and schedules."""

from typing import Any

import pytest
import torch
from pydantic import ValidationError

from foretell.data.splits import Splits
from foretell.training.config import TrainingConfig
from foretell.training.losses import judge_of, loss_of
from foretell.training.schedules import schedule_of


def config(**values: object) -> TrainingConfig:
    return TrainingConfig.model_validate(
        {"arch": "patchtst", "context": 96, "horizon": 24} | values
    )


def test_texts_of_the_command_line_are_parsed() -> None:
    read = config(context="96", learning_rate="0.2", splits="0.6,0.2,0.2")
    assert (read.context, read.learning_rate, read.splits) == (96, 0.2, (0.6, 0.2, 0.2))
    read = config(target="wind, sun", calendar="hour, day_of_week")
    assert (read.target, read.calendar) == (("wind", "sun"), ("hour", "day_of_week"))
    read = config(loss="quantile", quantile=0.9, huber_delta=1)
    assert read.quantile == 0.9
    assert config(schedule="constant").warm_up == 0.1
    assert config(schedule="one-cycle", warm_up=0.3).warm_up == 0.3
    # Patience can stop a training of default length.
    assert config().patience < config().epochs


def test_cuts() -> None:
    assert config(splits="ett-hourly").cuts == Splits.ett_hourly()
    assert config(splits="ett-minute").cuts == Splits.ett_minute()
    assert config(splits="0.6,0.2,0.2").cuts == Splits.by_fraction(0.6, 0.2, 0.2)


CALENDAR = r"expected auto, all, none or some of second, "
SPLITS = "expected ett-hourly, ett-minute or three"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"arch": "oracle"}, r"expected one of autoformer, .*patchtst"),
        ({"quantile": 0.9}, "only loss quantile reads it"),
        ({"loss": "mse", "huber_delta": 0.5}, "only loss huber reads it"),
        *(({"splits": splits}, SPLITS) for splits in ("ett", "0.7,0.3", "a,b,c", 3, (0.7, 0.1))),
        *(({"calendar": calendar}, CALENDAR) for calendar in ("noon", "hour,noon", 3)),
        *(
            ({"schedule": schedule, "warm_up": 0.3}, f"schedule {schedule} has no warm-up")
            for schedule in ("constant", "halving", "type2", "type3")
        ),
        ({"cut_at": "1.3.2024"}, "expected a date such as 2024-03-01"),
        ({"cut_at": "2024-03-01T00:00+01:00"}, "without an offset"),
        ({"cut_at": 2024}, "without an offset"),
        ({"cut_at": "2024-03-01", "splits": "ett-hourly"}, "has to be three fractions"),
    ],
)
def test_invalid_settings_are_refused(given: dict[str, object], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        config(**given)


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
def test_loss_decides_the_metric_of_epochs(name: Any, expected: float, judged: float) -> None:
    loss, judge = loss_of(name, huber_delta=2, quantile=0.9), judge_of(name, quantile=0.9)
    assert loss(FORECAST, TARGET).item() == pytest.approx(expected)
    assert judge(FORECAST, TARGET).item() == pytest.approx(judged)


def rates(name: Any, peak: float, epochs: int, per_epoch: int, warm_up: float = 0.1) -> list[float]:
    weight = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.Adam([weight], lr=peak)
    steps = epochs * per_epoch
    own = {"steps": steps, "steps_per_epoch": per_epoch, "warm_up": warm_up}
    scheduler = schedule_of(name, optimizer, **own)
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
        # The rate that the published code sets after an epoch applies to the next.
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
    [("cosine", 1, 0), ("cosine", 1, 0.1), *(("one-cycle", n, 1 / n) for n in (10, 5, 2))],
)
def test_a_rise_of_a_single_step_begins_at_the_peak(name: str, epochs: int, warm_up: float) -> None:
    found = rates(name, 0.5, epochs, 1, warm_up)
    assert found[0] == pytest.approx(0.5)
    assert found == sorted(found, reverse=True)
