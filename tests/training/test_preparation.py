from datetime import timedelta

import numpy as np
import pytest

from foretell.data.panel import Panel
from foretell.models.architectures.transformer import TransformerConfig
from foretell.timeaxis.frequency import Frequency
from foretell.training.config import TrainingConfig
from foretell.training.errors import TrainingError
from foretell.training.preparation import forecaster_config, prepare

HOUR = Frequency.parse("h")
CHANNELS = ("wind", "load", "sun")


def of(arch: str, **values: object) -> TrainingConfig:
    return TrainingConfig(arch=arch, context=48, horizon=12, model=values)


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


def test_patchtst_reads_no_calendar() -> None:
    config = forecaster_config(of("patchtst", patch=8), CHANNELS, HOUR)
    assert config.calendar is None
    assert (config.channels, config.context, config.horizon) == (3, 48, 12)


@pytest.mark.parametrize(
    ("embedding", "encoding"), [(None, "scaled"), ("timeF", "scaled"), ("learned", "integer")]
)
def test_the_embedding_decides_the_calendar(embedding: str | None, encoding: str) -> None:
    config = forecaster_config(
        of("transformer", **{"embedding": embedding} if embedding else {}), CHANNELS, HOUR
    )
    assert isinstance(config, TransformerConfig)
    assert config.calendar is not None
    assert config.calendar.encoding == encoding
    assert config.label == 24


def test_yearly_data_has_no_calendar() -> None:
    config = forecaster_config(of("autoformer", label=12), CHANNELS, Frequency.parse("YS"))
    assert config.calendar is None


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
    ],
)
def test_a_wrong_hyper_parameter_is_named(settings: TrainingConfig, message: str) -> None:
    with pytest.raises(TrainingError, match=message):
        forecaster_config(settings, CHANNELS, HOUR)


@pytest.mark.parametrize(
    ("calendar", "days", "features"),
    [
        ("auto", 260, ("hour", "day_of_week")),
        ("auto", 1, None),
        ("all", 1, ("hour", "day_of_week", "day_of_month", "day_of_year")),
        ("none", 999, None),
        ("month,hour", 1, ("month", "hour")),
    ],
)
def test_the_calendar_is_chosen(calendar: str, days: int, features: tuple[str, ...] | None) -> None:
    settings = TrainingConfig.model_validate(
        {"arch": "transformer", "context": 48, "horizon": 12, "calendar": calendar}
    )
    config = forecaster_config(settings, CHANNELS, HOUR, timedelta(days=days))
    assert (config.calendar and config.calendar.features) == features


def test_a_calendar_for_what_reads_none() -> None:
    settings = of("patchtst").model_copy(update={"calendar": ("hour",)})
    with pytest.raises(TrainingError, match=r"^calendar: patchtst reads none"):
        forecaster_config(settings, CHANNELS, HOUR)


def test_a_feature_without_a_table() -> None:
    settings = of("transformer", embedding="learned").model_copy(update={"calendar": ("week",)})
    with pytest.raises(TrainingError, match="calendar: embedding learned has no table of week"):
        forecaster_config(settings, CHANNELS, HOUR)


def test_few_days_teach_the_hour_alone(panel: Panel) -> None:
    config = prepare(of("autoformer"), panel).config
    assert config.calendar is not None
    assert config.calendar.features == ("hour",)
