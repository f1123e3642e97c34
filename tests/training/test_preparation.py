from datetime import timedelta

import numpy as np
import pytest

from foretell.data.panel import Panel
from foretell.timeaxis.frequency import Frequency
from foretell.training.config import TrainingConfig
from foretell.training.errors import TrainingError
from foretell.training.preparation import forecaster_config, prepare

HOUR = Frequency.parse("h")
CHANNELS = ("wind", "load", "sun")


def of(arch: str, calendar: object = "auto", **model: object) -> TrainingConfig:
    given = {"arch": arch, "context": 48, "horizon": 12, "calendar": calendar, "model": model}
    return TrainingConfig.model_validate(given)


def test_windows_are_standardised_by_the_training_rows(
    panel: Panel, settings: TrainingConfig
) -> None:
    prepared = prepare(settings, panel)
    train = panel.tables[0].values[:168]
    np.testing.assert_allclose(prepared.scaler.mean, train.mean(axis=0))
    np.testing.assert_allclose(prepared.scaler.std, train.std(axis=0))
    assert prepared.split.validation == ((0, 168 - 16, 192),)
    assert len(prepared.train) == 168 - 16 - 2 + 1
    assert len(prepared.test) == 48 - 2 + 1


HOURS = ("hour", "day_of_week", "day_of_month", "day_of_year")
ENCODED = ("month", "day_of_month", "day_of_week", "hour")


@pytest.mark.parametrize(
    ("settings", "frequency", "days", "features"),
    [
        (of("patchtst", patch=8), "h", None, None),
        (of("autoformer", label=12), "YS", None, None),
        (of("transformer"), "h", None, HOURS),
        (of("transformer", embedding="timeF"), "h", None, HOURS),
        (of("transformer", embedding="learned"), "h", None, ENCODED),
        (of("transformer"), "h", 260, ("hour", "day_of_week")),
        (of("transformer"), "h", 1, None),
        (of("transformer", "all"), "h", 1, HOURS),
        (of("transformer", "none"), "h", 999, None),
        (of("transformer", "month,hour"), "h", 1, ("month", "hour")),
    ],
)
def test_the_calendar_suits_model_and_data(
    settings: TrainingConfig, frequency: str, days: int | None, features: tuple[str, ...] | None
) -> None:
    covered = () if days is None else (timedelta(days=days),)
    config = forecaster_config(settings, CHANNELS, Frequency.parse(frequency), *covered)
    assert (config.channels, config.context, config.horizon) == (3, 48, 12)
    assert (config.calendar and config.calendar.features) == features
    if config.calendar is not None:
        encoding = "integer" if features == ENCODED else "scaled"
        assert config.calendar.encoding == encoding
        assert config.label == 24


@pytest.mark.parametrize(
    ("seconds", "features"), [(119, None), (120, ("second",)), (7200, ("second", "minute"))]
)
def test_features_of_the_clock_need_two_cycles(
    seconds: int, features: tuple[str, ...] | None
) -> None:
    frequency = Frequency.parse("s")
    covered = timedelta(seconds=seconds)
    config = forecaster_config(of("transformer"), CHANNELS, frequency, covered)
    assert (config.calendar and config.calendar.features) == features


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (of("patchtst", label=4), "^label: patchtst has no such setting"),
        (of("dlinear", heads=2), "^heads: dlinear has no such setting"),
        (of("autoformer", attention={"mechanism": "autocorrelation", "factor": "inf"}), "^factor"),
        (of("patchtst", attention="oracle"), "^attention: expected one of"),
        (of("patchtst", heads=5), "^heads: 5 heads do not divide"),
        (of("patchtst", patch=57), "^patch: 57 steps are more than the context 48 and a stride"),
        (of("autoformer", moving_average=4), "^moving_average: expected an odd number"),
        (of("patchtst", "hour"), "^calendar: patchtst reads none"),
        (
            of("transformer", "week", embedding="learned"),
            "calendar: embedding learned has no table of week",
        ),
    ],
)
def test_a_wrong_hyper_parameter_is_named(settings: TrainingConfig, message: str) -> None:
    with pytest.raises(TrainingError, match=message):
        forecaster_config(settings, CHANNELS, HOUR)


def test_few_days_give_a_calendar_of_hours_only(panel: Panel) -> None:
    config = prepare(of("autoformer"), panel).config
    assert config.calendar is not None
    assert config.calendar.features == ("hour",)
