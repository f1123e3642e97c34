"""From settings and a table to a model and its windows."""

from __future__ import annotations

from typing import NamedTuple

from pydantic import ValidationError

from foretell.bundle.frequency import Frequency
from foretell.bundle.manifest import Scaler
from foretell.models.data.scaler import fit
from foretell.models.data.splits import Splits
from foretell.models.data.table import Table
from foretell.models.data.windows import Windows
from foretell.models.forecaster import ARCHITECTURES, ForecasterConfig
from foretell.models.training.config import TrainingConfig
from foretell.models.training.errors import TrainingError


class Prepared(NamedTuple):
    """What a training starts from."""

    config: ForecasterConfig
    splits: Splits
    scaler: Scaler
    train: Windows
    validation: Windows
    test: Windows


def prepare(settings: TrainingConfig, table: Table) -> Prepared:
    """Configure the architecture, split the table and standardise it by its training rows.

    Raises:
        TrainingError: the architecture cannot be configured so.
        DataError: a split holds no window.
    """
    config = forecaster_config(settings, len(table.channels), table.frequency)
    splits = settings.split(len(table))
    scaler = fit(table.values[slice(*splits.train)])
    train, validation, test = (
        Windows(table, rows, config.context, config.horizon, scaler, config.calendar)
        for rows in (splits.train, splits.validation, splits.test)
    )
    return Prepared(config, splits, scaler, train, validation, test)


def forecaster_config(
    settings: TrainingConfig, channels: int, frequency: Frequency
) -> ForecasterConfig:
    """The configuration of the architecture that the settings name.

    Args:
        settings: Hyper-parameters.
        channels: Channels of the data.
        frequency: Decides the calendar features, for architectures that read any.

    Raises:
        TrainingError: a hyper-parameter is not one of this architecture, or is wrong; the message
            names it.
    """
    family = ARCHITECTURES[settings.arch]
    for name in settings.model:
        if name not in family.model_fields:
            raise TrainingError(f"{name}: {settings.arch} has no such setting")
    data = {
        "channels": channels,
        "context": settings.context,
        "horizon": settings.horizon,
        "calendar": family.calendar_for(frequency, settings.model),
    }
    # Levels move between training and use; what is imported or known is as it is.
    usual = {"window_norm": "mean"}
    try:
        return family.model_validate(usual | settings.model | data)
    except ValidationError as error:
        first = error.errors()[0]
        names = [part for part in first["loc"] if isinstance(part, str)]
        place = f"{names[-1]}: " if names else ""
        raise TrainingError(f"{place}{first['msg'].removeprefix('Value error, ')}") from None
