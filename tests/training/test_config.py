import pytest
from pydantic import ValidationError

from foretell.data.splits import Splits
from foretell.training.config import TrainingConfig


def config(**values: object) -> TrainingConfig:
    return TrainingConfig.model_validate(
        {"arch": "patchtst", "context": 96, "horizon": 24} | values
    )


def test_texts_are_read_as_a_command_line_gives_them() -> None:
    read = config(context="96", learning_rate="0.2", splits="0.6,0.2,0.2")
    assert (read.context, read.learning_rate, read.splits) == (96, 0.2, (0.6, 0.2, 0.2))
    read = config(target="wind, sun", calendar="hour, day_of_week")
    assert (read.target, read.calendar) == (("wind", "sun"), ("hour", "day_of_week"))


def test_the_family_is_one() -> None:
    with pytest.raises(ValidationError, match=r"expected one of autoformer, .*patchtst"):
        config(arch="oracle")


@pytest.mark.parametrize("setting", [{"quantile": 0.9}, {"loss": "mse", "huber_delta": 0.5}])
def test_what_the_loss_does_not_read(setting: dict[str, object]) -> None:
    with pytest.raises(ValidationError, match=r"only loss (quantile|huber) reads it"):
        config(**setting)
    read = config(loss="quantile", quantile=0.9, huber_delta=1)
    assert read.quantile == 0.9


@pytest.mark.parametrize("splits", ["ett", "0.7,0.3", "a,b,c", 3, (0.7, 0.1)])
def test_splits_that_are_none(splits: object) -> None:
    with pytest.raises(ValidationError, match="expected ett-hourly, ett-minute or three"):
        config(splits=splits)


def test_patience_can_stop_a_training_of_default_length() -> None:
    assert config().patience < config().epochs


def test_cuts() -> None:
    assert config(splits="ett-hourly").cuts == Splits.ett_hourly()
    assert config(splits="ett-minute").cuts == Splits.ett_minute()
    assert config(splits="0.6,0.2,0.2").cuts == Splits.by_fraction(0.6, 0.2, 0.2)


@pytest.mark.parametrize("calendar", ["noon", "hour,noon", 3])
def test_a_calendar_that_is_none(calendar: object) -> None:
    with pytest.raises(ValidationError, match=r"expected auto, all, none or some of second, "):
        config(calendar=calendar)


@pytest.mark.parametrize("schedule", ["constant", "halving", "type2", "type3"])
def test_a_warm_up_that_the_schedule_has_not(schedule: str) -> None:
    with pytest.raises(ValidationError, match=f"schedule {schedule} has none"):
        config(schedule=schedule, warm_up=0.3)
    assert config(schedule=schedule).warm_up == 0.1
    assert config(schedule="one-cycle", warm_up=0.3).warm_up == 0.3
