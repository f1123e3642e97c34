"""The data a published checkpoint was trained on, read the way its code read it."""

from __future__ import annotations

import math
import re
from pathlib import Path

import numpy as np

from foretell.bundle.manifest import Scaler
from foretell.data.panel import Panel
from foretell.data.reading import Reading, read
from foretell.data.splits import Splits
from foretell.importers.arguments import Arguments
from foretell.importers.code_base import CodeBase
from foretell.importers.configure import forecasts_last, values_of
from foretell.importers.errors import ImporterError
from foretell.timeaxis.frequency import Frequency


def read_panel(
    path: Path, arguments: Arguments, channels: tuple[str, ...] | None, frequency: Frequency | None
) -> Panel:
    """Read the CSV: the channels named, the target alone for a model of it, or all.

    Raises:
        DataError: the file holds no such time series.
    """
    features, target = arguments.get("features"), arguments.get("target")
    if channels is None and features is not None and features.value == "S" and target is not None:
        channels = (str(target.value),)
    return read(
        path, Reading(channels=channels, frequency=None if frequency is None else str(frequency))
    )


def needs_target(panel: Panel, arguments: Arguments, code: CodeBase, *, chosen: bool) -> bool:
    """Whether which channel is the target decides what the model's channels are.

    Args:
        panel: The data.
        arguments: What is known about the model.
        code: The code base.
        chosen: Whether the channels were named one by one.
    """
    if chosen or len(panel.channels) == 1:
        return False
    expected, split = arguments.get("enc_in"), arguments.get("split")
    if expected is not None and expected.value == 1:
        return True
    moved = code.target_last and (split is None or not str(split.value).startswith("ett_"))
    # Without a size of their number among its weights, no channel differs from another.
    return moved and (expected is not None or forecasts_last(values_of(arguments)))


def arrange(panel: Panel, arguments: Arguments, code: CodeBase, *, chosen: bool) -> Panel:
    """Put the channels in the model's order and check their number.

    Raises:
        ImporterError: the target is no channel, or the number is not the model's.
    """
    names = list(panel.channels)
    if needs_target(panel, arguments, code, chosen=chosen):
        target = str(arguments["target"].value)
        if target not in names:
            raise ImporterError(f"--target {target}: no such channel; there are {', '.join(names)}")
        single = "enc_in" in arguments and arguments["enc_in"].value == 1
        names = [target] if single else [*(n for n in names if n != target), target]
    place = panel.source.path if panel.source else "data"
    if "enc_in" in arguments and arguments["enc_in"].value != len(names):
        raise ImporterError(
            f"{place}: {len(names)} channels ({', '.join(names)}), but the model has "
            f"{arguments['enc_in'].value} by {arguments['enc_in'].provenance}; name them with "
            "--channels"
        )
    return panel.select(names)


def split_rows(split: str) -> Splits:
    """The rows of a published split.

    Args:
        split: `ett_hour`, `ett_minute`, `custom`, or fractions such as `0.6,0.2,0.2`.

    Raises:
        DataError: the fractions do not add up to 1.
        ImporterError: the text is none of these.
    """
    match split:
        case "ett_hour":
            return Splits.ett_hourly()
        case "ett_minute":
            return Splits.ett_minute()
        case "custom":
            return Splits.by_fraction()
    try:
        train, validation, test = (float(part) for part in split.split(","))
    except ValueError:
        raise ImporterError(
            f"--split {split}: expected ett_hour, ett_minute, custom or three fractions"
        ) from None
    return Splits.by_fraction(train, validation, test)


def read_scaler(mean: str | None, std: str | None) -> Scaler | None:
    """Mean and standard deviation, as numbers or as files of numbers; None for neither.

    Args:
        mean: Numbers separated by commas, or a file: `.npy`, JSON or text.
        std: Likewise.

    Raises:
        ImporterError: a text holds no numbers, or they do not fit together.
    """
    if mean is None and std is None:
        return None
    if mean is None or std is None:
        raise ImporterError("--mean and --std belong together")
    scaler = Scaler(mean=_numbers(mean, "--mean"), std=_numbers(std, "--std"))
    if len(scaler.mean) != len(scaler.std):
        raise ImporterError(f"--mean has {len(scaler.mean)} numbers, --std {len(scaler.std)}")
    if min(scaler.std) <= 0:
        raise ImporterError("--std: a standard deviation is not positive")
    return scaler


def _numbers(text: str, flag: str) -> tuple[float, ...]:
    path = Path(text)
    try:
        if path.suffix == ".npy":
            numbers = tuple(np.load(path, allow_pickle=False).ravel().astype(float).tolist())
        else:
            content = path.read_text("utf-8") if path.is_file() else text
            numbers = tuple(float(part) for part in re.split(r"[\s,;\[\]]+", content) if part)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ImporterError(f"{flag} {text[:60]}: {reason}") from None
    if not numbers or not all(math.isfinite(number) for number in numbers):
        raise ImporterError(f"{flag} {text[:60]}: expected finite numbers or a file of them")
    return numbers
