"""Conversion of a published checkpoint to a model and its description."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module
from typing import NamedTuple, cast

from foretell.bundle.scaler import Scaler
from foretell.data.panel import Panel, check_bounds
from foretell.data.scaler import fit
from foretell.data.source import DataSource
from foretell.data.splits import overlap
from foretell.importers.arguments import Argument, Arguments
from foretell.importers.data import check_described, read_panel, split_rows
from foretell.importers.errors import ImporterError
from foretell.importers.registry import FOLDERS
from foretell.importers.saved import Request, SavedModel
from foretell.models.checkpoint import CheckpointInfo
from foretell.models.forecaster import Forecaster
from foretell.timeaxis.errors import FrequencyError
from foretell.timeaxis.frequency import Frequency
from foretell.training.accuracy import measure_within
from foretell.training.windows import Windows


class Imported(NamedTuple):
    """An imported model in eval mode.

    Attributes:
        info: Description of the model.
        model: The model.
        arguments: Arguments that the model depends on, with their provenance.
    """

    info: CheckpointInfo
    model: Forecaster
    arguments: Arguments


def import_checkpoint(request: Request) -> Imported:
    """Import a checkpoint; with data, measure it on all windows of its test split.

    Raises:
        DataError: the data cannot be read, is too short, or exceeds the bounds.
        ImporterError: the checkpoint cannot be imported; the message has the reason or the missing
            arguments.
    """
    _check_frequency(request.frequency)
    _check_names(request)
    own = FOLDERS.get(request.source or "")
    if own is not None:
        _check_of_folders({*own, "split"}, request)
    library = import_module(f"foretell.importers.{request.source if own else 'published'}")
    saved = cast("SavedModel", library.read(request))
    request, taken = _with_saved(request, saved)
    head, arguments = saved.model.head, saved.arguments
    if head is not None and head.is_of_counts and not request.unscaled:
        raise ImporterError(
            f"{head.described.family}: counts are trained without a scaler: add --no-scaler"
        )
    panel = saved.panel
    if request.data is None:
        check_described(request)
    elif panel is None:
        if request.scaler is None and not request.unscaled:
            raise ImporterError(
                "the scaler is unknown: give --mean and --std, or --no-scaler if the model was "
                "trained on unscaled values"
            )
        panel = read_panel(request, arguments, saved.model.config.covariates)
    names = _check_channels(request, panel, saved.model.config.channels)
    if panel is not None and "split" not in arguments:
        if "split" not in request.arguments:
            raise ImporterError(
                "split: the training rows are unknown: give ett_hour, ett_minute, custom, or three "
                "fractions such as 0.7,0.1,0.2"
            )
        arguments["split"] = Argument(request.arguments["split"], "--set")
    info = _describe(request, saved.model, panel, names, arguments)
    return Imported(info, saved.model, arguments | taken)


def _check_frequency(frequency: str | None) -> None:
    try:
        Frequency.parse(frequency or "h")
    except FrequencyError as error:
        raise ImporterError(f"--frequency: {error}") from None


def _check_names(request: Request) -> None:
    """Refuse names of covariates for a source that has them."""
    names = {"future": request.future_covariates, "static": request.static_covariates}
    for kind, given in names.items():
        if given is not None and request.source != "huggingface":
            raise ImporterError(f"--{kind}-covariates: only --from huggingface lacks these names")


def _check_of_folders(read: set[str], request: Request) -> None:
    """Refuse options that are read from the folder."""
    options = {"arch": request.architecture, "setting": request.setting, "config": request.script}
    given = {
        name for name, value in options.items() if value is not None
    } | request.arguments.keys()
    if unread := sorted(given - read):
        raise ImporterError(f"{unread[0]}: is read from the folder, and cannot be given")


def _with_saved(request: Request, saved: SavedModel) -> tuple[Request, Arguments]:
    """The request, completed from the checkpoint, and the values taken with their provenance."""
    taken: Arguments = {}
    if saved.channels is not None and request.channels is None:
        names = saved.channels.value
        request = replace(request, channels=names)
        taken["channels"] = saved.channels._replace(value=", ".join(names))
    if saved.frequency is not None and request.frequency is None:
        request = replace(request, frequency=saved.frequency.value)
        taken["frequency"] = saved.frequency
    if saved.unscaled and request.scaler is None:
        request = replace(request, unscaled=True)
        taken["scaler"] = Argument("unscaled values", "the library")
    return request, taken


def _check_channels(request: Request, panel: Panel | None, count: int) -> tuple[str, ...]:
    """The names of the channels; raise if their number is not `count` or one repeats."""
    names = (request.channels or ()) if panel is None else panel.channels
    if panel is not None and len(names) != count:
        raise ImporterError(
            f"{request.data}: {len(names)} channels ({', '.join(names)}), but the model has "
            f"{count}; name them with --channels"
        )
    if len(names) != count:
        raise ImporterError(f"--channels: expected {count} names, got {len(names)}")
    if len(set(names)) != count:
        raise ImporterError("--channels: a name occurs twice")
    return names


def _describe(
    request: Request,
    model: Forecaster,
    panel: Panel | None,
    names: tuple[str, ...],
    arguments: Arguments,
) -> CheckpointInfo:
    """Describe the model; with data, measure its accuracy too."""
    config, scaler, source, test = model.config, request.scaler, None, None
    if request.unscaled:
        if scaler is not None:
            raise ImporterError("--no-scaler: cannot be combined with --mean and --std")
        scaler = Scaler.identity(config.channels)
    if scaler is not None and len(scaler.mean) != config.channels:
        raise ImporterError(
            f"--mean and --std have {len(scaler.mean)} numbers, the model has "
            f"{config.channels} channels"
        )
    targets = names if config.targets is None else [names[place] for place in config.targets]
    _check_target(request, targets)
    check_bounds(request.bounds, targets, panel)
    if panel is not None:
        splits = split_rows(str(arguments["split"].value))
        split = splits.cut(panel, config.context, config.horizon)
        source = DataSource.of(panel, splits)
        if scaler is None:
            scaler = fit(panel, split.train)
        elif scaler.is_identity:
            scaler = scaler.beside(fit(panel, split.train))
        windows = Windows.of(config, panel, split.test, scaler)
        test = measure_within(model, request.bounds, targets, scaler, windows, panel.frequency)
        overlaps = overlap(panel, split, config.context) is not None
        test = test.model_copy(update={"overlaps": overlaps})
    return CheckpointInfo.model_validate(
        {
            "config": config,
            "channels": names,
            "frequency": request.frequency if panel is None else str(panel.frequency),
            "scaler": scaler,
            "bounds": request.bounds,
            "data": source,
            "test": test,
        }
    )


def _check_target(request: Request, targets: Sequence[str]) -> None:
    """Refuse the name of a target that a model of one target does not forecast."""
    name = request.arguments.get("target", targets[0])
    if len(targets) == 1 and name != targets[0]:
        raise ImporterError(
            f"target {name}: the model forecasts its last channel, which is {targets[0]}; "
            "choose another order with --channels"
        )
