"""The training data of a checkpoint, and the options that replace it."""

from __future__ import annotations

import math
import re
from pathlib import Path

import numpy as np

from foretell.bundle.covariates import Covariates
from foretell.bundle.scaler import Scaler
from foretell.data.panel import Panel
from foretell.data.reading import Reading, read
from foretell.data.splits import Splits
from foretell.importers.arguments import Arguments, values_of
from foretell.importers.errors import ImporterError
from foretell.importers.saved import Request


def read_panel(
    request: Request, arguments: Arguments, covariates: Covariates | None = None
) -> Panel | None:
    """Read the data, if any: the named channels, only the target for `features` S, or all.

    Args:
        request: The request.
        arguments: Arguments of the model.
        covariates: Covariates of the model, which are columns too.

    Raises:
        DataError: the file does not hold such time series.
    """
    if request.data is None:
        return None
    channels = request.channels
    if channels is None and values_of(arguments).get("features") == "S" and "target" in arguments:
        channels = (str(arguments["target"].value),)
    reading = Reading(channels=channels, frequency=request.frequency)
    return read(request.data, reading.model_copy(update=Reading.of_covariates(covariates)))


def is_moved(panel: Panel, arguments: Arguments, request: Request, *, target_last: bool) -> bool:
    """Whether the published code selects the target or, with `target_last`, puts it last."""
    if request.channels is not None or len(panel.channels) == 1:
        return False
    values = values_of(arguments)
    if values.get("enc_in") == 1:
        return True
    # If no weight depends on the number of channels, their order does not matter.
    differ = "enc_in" in values or values.get("features") == "MS"
    return target_last and differ and not str(values.get("split")).startswith("ett_")


def arranged(panel: Panel, arguments: Arguments) -> tuple[str, ...]:
    """The channels in the order of the published code, with the target last.

    Raises:
        ImporterError: the target is not a channel.
    """
    names, target = panel.channels, str(arguments["target"].value)
    if target not in names:
        raise ImporterError(f"target {target}: no such channel; there are {', '.join(names)}")
    single = "enc_in" in arguments and arguments["enc_in"].value == 1
    return (*(name for name in names if name != target and not single), target)


def check_described(request: Request) -> None:
    """Refuse a request without data that lacks channels, frequency or scaler."""
    scaled = request.unscaled or request.scaler is not None
    if request.channels is None or request.frequency is None or not scaled:
        raise ImporterError(
            "without --data, give names, spacing and scale of the channels with "
            "--channels, --frequency, --mean and --std (or --no-scaler)"
        )


def split_rows(split: str) -> Splits:
    """Splits for `ett_hour`, `ett_minute`, `custom`, or fractions such as `0.6,0.2,0.2`.

    Raises:
        DataError: the fractions do not add up to 1.
        ImporterError: the text has another form.
    """
    known = {"ett_hour": Splits.ett_hourly, "ett_minute": Splits.ett_minute}
    known |= {"custom": Splits.by_fraction}
    if split in known:
        return known[split]()
    try:
        train, validation, test = map(float, split.split(","))
    except ValueError:
        raise ImporterError(
            f"split {split}: expected ett_hour, ett_minute, custom or three fractions"
        ) from None
    return Splits.by_fraction(train, validation, test)


def read_scaler(mean: str | None, std: str | None) -> Scaler | None:
    """The scaler from mean and standard deviation, as numbers or as `.npy`, JSON or text files.

    Raises:
        ImporterError: a text holds no numbers, or the numbers do not fit together.
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
