"""From a folder that a library saved a model in to the model and all that is known about it."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from typing import cast

from foretell.data.panel import Panel
from foretell.importers.arguments import Argument, Arguments
from foretell.importers.convert import (
    Imported,
    Request,
    check_described,
    check_names,
    describe,
    parse_frequency,
)
from foretell.importers.data import read_panel
from foretell.importers.errors import ImporterError
from foretell.importers.given import read_arguments
from foretell.importers.registry import FOLDERS
from foretell.importers.saved import Saved

# All that a folder does not tell of data; what of the model, it does.
_ASKED = {"split"}


def import_folder(request: Request) -> Imported:
    """Adopt what a library of `FOLDERS` saved; with data, measure it on their test split.

    Raises:
        DataError: the data cannot be read, is too short, or lies beyond the bounds.
        ImporterError: the folder cannot be adopted, or something has to be given; the message says
            which.
    """
    assert request.source is not None  # noqa: S101 - which the caller went by
    told = {"arch": request.architecture, "setting": request.setting, "config": request.script}
    given = {name for name, value in told.items() if value is not None} | request.arguments.keys()
    own = FOLDERS[request.source]
    if unread := sorted(given - _ASKED - own.keys()):
        raise ImporterError(f"--{unread[0]}: the folder tells what the model is")
    arguments = read_arguments(request.arguments)
    library = import_module(f"foretell.importers.{request.source}")
    answers = {
        name: Argument(value, f"--{name}")
        for name, value in request.arguments.items()
        if name in own
    }
    saved = cast("Saved", library.read(request.file, request.member, answers))
    request, known = _with_told(request, saved)
    head = saved.model.head
    if head is not None and head.is_of_counts and not request.unscaled:
        raise ImporterError(
            f"{head.described.family}: of counts, which are trained on as they are: --unscaled"
        )
    panel = _read_data(request, saved.model.config.channels)
    if panel is not None and not arguments:
        raise ImporterError(
            "--split: which rows of the data it was trained on has to be given: ett_hour, "
            "ett_minute, custom, or three fractions such as 0.7,0.1,0.2"
        )
    info = describe(request, saved.model, panel, arguments)
    return Imported(info, saved.model, saved.arguments | arguments | known)


def _with_told(request: Request, saved: Saved) -> tuple[Request, Arguments]:
    """The request with what the folder tells and nobody else, and that with its provenance."""
    told: Arguments = {}
    if saved.channels is not None and request.channels is None:
        names = saved.channels.value
        request = replace(request, channels=names)
        told["channels"] = saved.channels._replace(value=", ".join(names))
    if saved.frequency is not None and request.frequency is None:
        request = replace(request, frequency=saved.frequency.value)
        told["frequency"] = saved.frequency
    if saved.unscaled and request.scaler is None:
        request = replace(request, unscaled=True)
        told["scaler"] = Argument("values as they are", "the library")
    return request, told


def _read_data(request: Request, channels: int) -> Panel | None:
    frequency = parse_frequency(request)
    if request.data is None:
        check_described(request)
        check_names(request.channels or (), channels)
        return None
    if request.scaler is None and not request.unscaled:
        raise ImporterError(
            "what its values were divided by has to be given: --mean and --std, or --unscaled "
            "where it was trained on them as they are"
        )
    panel = read_panel(request.data, {}, request.channels, frequency)
    if len(panel.channels) != channels:
        raise ImporterError(
            f"{request.data}: {len(panel.channels)} channels ({', '.join(panel.channels)}), but "
            f"the model has {channels}; name them with --channels"
        )
    return panel
