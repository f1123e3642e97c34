"""Preparation of a training: the model's configuration and the windows, from settings and data."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import NamedTuple

from foretell.bundle.covariates import NO_COVARIATES, Covariates
from foretell.bundle.nearness import suggestion
from foretell.bundle.scaler import Scaler
from foretell.data.coding import fit_covariates, recoded
from foretell.data.copies import check_copies
from foretell.data.coverage import covered, learnable
from foretell.data.panel import Panel
from foretell.data.scaler import fit
from foretell.data.splits import Span, Split, Splits
from foretell.models.checkpoint import CheckpointInfo
from foretell.models.config import ARCHITECTURES, ForecasterConfig
from foretell.timeaxis.calendar import Calendar
from foretell.timeaxis.frequency import Frequency
from foretell.training.config import TrainingConfig
from foretell.training.configuration import configuration
from foretell.training.counts import check_counts, check_norm, usual_norm
from foretell.training.errors import TrainingError
from foretell.training.kept import check_rows, kept_info
from foretell.training.windows import Windows


class Prepared(NamedTuple):
    """The start of a training: data as the model reads it, configuration, splits and windows.

    Attributes:
        kept: Description of the network that is kept, with the decoder; None without one.
        warning: Warning about the rows that the kept network has seen, if there is one.
    """

    panel: Panel
    config: ForecasterConfig
    splits: Splits
    split: Split
    scaler: Scaler
    train: Windows
    validation: Windows
    test: Windows
    kept: CheckpointInfo | None
    warning: str | None


def prepare(settings: TrainingConfig, panel: Panel) -> Prepared:
    """Configure the architecture, split the panel and standardise it by its training rows.

    Raises:
        TrainingError: the architecture does not accept the settings, or a kept network learnt from
            validation or test rows.
        DataError: a split has no window, a head of counts has rows that are not counts, a
            covariate gives a target before it is known, or training rows lack a category.
    """
    splits = settings.cuts
    split = splits.cut(panel, settings.context, settings.horizon)
    if panel.covariates is not None:
        is_other = settings.unseen_categories == "other"
        panel = recoded(panel, fit_covariates(panel, split.train, other=is_other))
    targets = targets_of(settings, panel.channels, panel.covariates)
    if panel.covariates is not None and settings.target_copies == "refuse":
        check_copies(panel, split.train, targets, settings.context, settings.horizon)
    time = covered(panel, split.train)
    kept, warning = None, None
    if settings.network is not None:
        kept = kept_info(settings.network, settings, panel, targets)
        warning = check_rows(kept, panel, split)
        config = kept.config
    else:
        config = forecaster_config(
            settings, panel.channels, panel.frequency, time, panel.covariates
        )
    usual = TrainingConfig.model_fields["loss"].default
    head = config.build_head()
    if head is not None and settings.loss != usual:
        raise TrainingError(f"loss: with a head it is the {head.loss_name}; leave loss out")
    if head is not None and head.is_of_counts:
        check_counts(config, panel)
    scaler = scaler_for(config, panel, split.train) if kept is None else kept.scaler
    train, validation, test = (Windows.of(config, panel, spans, scaler) for spans in split[:3])
    return Prepared(panel, config, splits, split, scaler, train, validation, test, kept, warning)


def scaler_for(config: ForecasterConfig, panel: Panel, train: Iterable[Span]) -> Scaler:
    """The scaler of a model, fitted on the training rows; it leaves counts unchanged."""
    fitted, head = fit(panel, train), config.build_head()
    if head is None or not head.is_of_counts:
        return fitted
    return Scaler.identity(config.channels).beside(fitted)


def targets_of(
    settings: TrainingConfig, channels: Sequence[str], covariates: Covariates | None = None
) -> tuple[str, ...]:
    """Names of the channels to forecast, in the order of all channels; no past covariates.

    Raises:
        TrainingError: the settings name an unknown channel, or a covariate.
    """
    known = covariates or NO_COVARIATES
    past = {name for each in known.past for name in each.channels}
    others = {each.name for each in (*known.future, *known.static)}
    for name in settings.target or ():
        if name in past or name in others - {*channels}:
            raise TrainingError(
                f"target: {name!r} is a covariate, which is not forecast; take it out of one"
            )
        if name not in channels:
            raise TrainingError(f"target: no channel {name!r}; {suggestion(name, channels)}")
    chosen = settings.target or channels
    return tuple(name for name in channels if name in chosen and name not in past)


def forecaster_config(
    settings: TrainingConfig,
    channels: Sequence[str],
    frequency: Frequency,
    time: timedelta = timedelta.max,
    covariates: Covariates | None = None,
) -> ForecasterConfig:
    """The configuration of the architecture that the settings name.

    Args:
        settings: Settings of the training.
        channels: Names of the channels of the data.
        frequency: Frequency, which decides the calendar features of architectures that read any.
        time: Time that the training rows cover.
        covariates: Covariates of the data. Without another setting, an architecture that does not
            read them has a decoder of covariates.

    Raises:
        TrainingError: a setting is unknown to this architecture, or wrong; the message names it.
    """
    family = ARCHITECTURES[settings.arch]
    for name in settings.model:
        if name not in family.model_fields:
            raise TrainingError(f"{name}: {settings.arch} has no such setting")
    targets = targets_of(settings, channels, covariates)
    data = {
        "channels": len(channels),
        "targets": tuple(map(channels.index, targets)) if len(targets) < len(channels) else None,
        "context": settings.context,
        "horizon": settings.horizon,
        "calendar": _calendar(settings, family.calendar_for(frequency, settings.model), time),
        "covariates": covariates,
    }
    usual = {
        "window_norm": usual_norm(settings.model.get("head")),
        "covariate_decoder": covariates is not None and not family.reads_covariates,
    }
    config = configuration(family, usual | settings.model | data)
    check_norm(config)
    return config


def _calendar(
    settings: TrainingConfig, published: Calendar | None, time: timedelta
) -> Calendar | None:
    """The published calendar features that the settings choose, or others by name."""
    match settings.calendar:
        case "all":
            return published
        case "none":
            return None
        case "auto":
            return published and learnable(published, time)
    if published is None:
        raise TrainingError(f"calendar: {settings.arch} reads none in data of this frequency")
    return replace(published, features=settings.calendar)
