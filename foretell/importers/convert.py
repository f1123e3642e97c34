"""From a checkpoint of others to a model and all that is known about it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module
from typing import NamedTuple, cast

from foretell.bundle.manifest import Scaler
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
    """An adopted model in eval mode.

    Attributes:
        info: All that is known about it.
        model: The model.
        arguments: Those it depends on, each with its provenance.
    """

    info: CheckpointInfo
    model: Forecaster
    arguments: Arguments


def import_checkpoint(request: Request) -> Imported:
    """Adopt a checkpoint; with data, measure it on all windows of its test split.

    Raises:
        DataError: the data cannot be read, is too short, or lies beyond the bounds.
        ImporterError: the checkpoint cannot be adopted; the message says why, or names what is
            missing.
    """
    _check_frequency(request.frequency)
    own = FOLDERS.get(request.source or "")
    if own is not None:
        _check_of_folders({*own, "split"}, request)
    library = import_module(f"foretell.importers.{request.source if own else 'published'}")
    saved = cast("SavedModel", library.read(request))
    request, taken = _with_saved(request, saved)
    head, arguments = saved.model.head, saved.arguments
    if head is not None and head.is_of_counts and not request.unscaled:
        raise ImporterError(
            f"{head.described.family}: of counts, which are trained on as they are: --no-scaler"
        )
    panel = saved.panel
    if request.data is None:
        check_described(request)
    elif panel is None:
        if request.scaler is None and not request.unscaled:
            raise ImporterError(
                "what its values were divided by has to be given: --mean and --std, or --no-scaler "
                "where it was trained on them as they are"
            )
        panel = read_panel(request, arguments)
    names = _check_channels(request, panel, saved.model.config.channels)
    if panel is not None and "split" not in arguments:
        if "split" not in request.arguments:
            raise ImporterError(
                "split: which rows of the data it was trained on has to be given: ett_hour, "
                "ett_minute, custom, or three fractions such as 0.7,0.1,0.2"
            )
        arguments["split"] = Argument(request.arguments["split"], "--set")
    info = _describe(request, saved.model, panel, names, arguments)
    return Imported(info, saved.model, arguments | taken)


def _check_frequency(frequency: str | None) -> None:
    try:
        Frequency.parse(frequency or "h")
    except FrequencyError as error:
        raise ImporterError(f"--frequency: {error}") from None


def _check_of_folders(read: set[str], request: Request) -> None:
    """Refuse options for what is read from a folder."""
    options = {"arch": request.architecture, "setting": request.setting, "config": request.script}
    given = {
        name for name, value in options.items() if value is not None
    } | request.arguments.keys()
    if unread := sorted(given - read):
        raise ImporterError(f"{unread[0]}: is read from the folder, and cannot be given")


def _with_saved(request: Request, saved: SavedModel) -> tuple[Request, Arguments]:
    """The request with what the checkpoint alone has, and that with its provenance."""
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
        taken["scaler"] = Argument("values as they are", "the library")
    return request, taken


def _check_channels(request: Request, panel: Panel | None, count: int) -> tuple[str, ...]:
    """The names of the channels; refuse those that are not of so many."""
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
    """All there is to know about the model; with data, its accuracy too."""
    config, scaler, source, test = model.config, request.scaler, None, None
    if request.unscaled:
        if scaler is not None:
            raise ImporterError("--no-scaler: there are --mean and --std")
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
    """Refuse a target by its name that is not what a model of one target forecasts."""
    name = request.arguments.get("target", targets[0])
    if len(targets) == 1 and name != targets[0]:
        raise ImporterError(
            f"target {name}: the model forecasts its last channel, which is {targets[0]}; "
            "--channels puts another one there"
        )
