"""A trained network that is kept as it is, while a decoder of covariates learns beside it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from foretell.bundle.checksums import sha256
from foretell.data.errors import DataError, MissingFileError
from foretell.data.panel import Panel
from foretell.data.source import DataSource
from foretell.data.splits import Span, Split
from foretell.models.checkpoint import CheckpointInfo, load, load_info
from foretell.models.forecaster import Forecaster
from foretell.timeaxis.frequency import Frequency
from foretell.timeaxis.timestamps import shown
from foretell.training.config import TrainingConfig
from foretell.training.configuration import configuration
from foretell.training.errors import TrainingError

_OF_DECODER = ("covariate_norm", "covariate_width", "covariate_neighbours")
Rows = tuple[NDArray[np.datetime64], NDArray[np.float64]]


def kept_info(
    folder: Path,
    settings: TrainingConfig,
    panel: Panel,
    targets: Sequence[str],
) -> CheckpointInfo:
    """Description of the network, with a decoder of covariates in its configuration.

    Args:
        folder: Checkpoint of the network.
        settings: Settings of the training, which must agree with the network.
        panel: The data.
        targets: Channels to forecast.

    Raises:
        TrainingError: there are no covariates, a setting is wrong, or settings or channels are not
            those of the network; the message names them.
        CheckpointError: the checkpoint cannot be read.
    """
    info = load_info(folder)
    config, covariates = info.config, panel.covariates
    if covariates is None:
        raise TrainingError("network: a decoder beside it needs covariates; name some")
    if config.covariates is not None:
        raise TrainingError(f"network: {folder} reads covariates already")
    if not config.takes_decoder:
        raise TrainingError(f"network: no decoder can stand beside {config.architecture}")
    if panel.channels != info.channels:
        raise TrainingError(
            f"network: it reads the channels {', '.join(info.channels)}; the data has "
            f"{', '.join(panel.channels)}"
        )
    for name, given, own in (
        ("arch", settings.arch, config.architecture),
        ("context", settings.context, config.context),
        ("horizon", settings.horizon, config.horizon),
        ("frequency", str(panel.frequency), info.frequency),
        ("target", ", ".join(targets), ", ".join(info.targets)),
    ):
        if given != own:
            raise TrainingError(f"{name}: {given} is not that of the network, {own}")
    if settings.calendar != TrainingConfig.model_fields["calendar"].default:
        raise TrainingError("calendar: the network has its own; leave it out")
    if unknown := settings.model.keys() - {*_OF_DECODER}:
        raise TrainingError(f"{min(unknown)}: the network has its own; leave it out")
    changes = settings.model | {"covariates": covariates, "covariate_decoder": True}
    fields = config.model_dump() | changes
    return info.model_copy(update={"config": configuration(type(config), fields)})


def check_rows(info: CheckpointInfo, panel: Panel, split: Split) -> str | None:
    """Refuse validation and test rows that a kept network has seen.

    Args:
        info: Description of the network.
        panel: The data, with the channels of the network.
        split: Split of its rows.

    Returns:
        A warning if the rows that the network has seen are unknown, or if it learnt from later
        rows of other series; otherwise None.

    Raises:
        TrainingError: the network learnt from validation or test rows, or was chosen by its error
            on test rows.
    """
    unknown = "validation and test errors are too small if the network learnt from those rows"
    context, horizon = info.config.context, info.config.horizon
    try:
        source = DataSource.recorded(info.data)
        if source is None:
            return f"network: its checkpoint does not record its data; {unknown}"
        file = None if panel.source is None else panel.source.path
        copy = file if file is not None and sha256(file) == source.sha256 else None
        known = source.read(info.channels, Frequency.parse(info.frequency), copy)
        seen = source.splits.cut(known, context, horizon)
    except DataError as error:
        remedy = "; put it back at that path" if isinstance(error, MissingFileError) else ""
        return (
            f"network: the rows that it learnt from cannot be compared: {error}{remedy}; {unknown}"
        )
    learnt = _by_series(known, seen.train)
    judged = _by_series(known, seen.validation, context)
    validation = _by_series(panel, split.validation, context)
    test = _by_series(panel, split.test, context)
    for verb, before, part, rows in (
        ("learnt from", learnt, "validation", validation),
        ("learnt from", learnt, "test", test),
        ("was chosen by its errors on", judged, "test", test),
    ):
        for name, (count, first) in _shared(before, rows).items():
            of = f" of series {name!r}" if name else ""
            raise TrainingError(
                f"network: it {verb} {count} {part} rows{of}, the first at {shown(first)}; take "
                "the splits that it was trained with, or train it again with these"
            )
    latest = max(times.max() for times, _ in learnt.values())
    if latest >= min(times.min() for times, _ in test.values()):
        return (
            f"network: it learnt from rows up to {shown(latest)}, which lie after test rows of "
            "another series; this may make test errors too small"
        )
    return None


def _by_series(panel: Panel, spans: Iterable[Span], skipped: int = 0) -> dict[str, Rows]:
    """Times and values of rows by series, without the first ones of each span."""
    found: dict[str, list[Rows]] = {}
    for place, start, end in spans:
        table, rows = panel.tables[place], slice(start + skipped, end)
        if start + skipped < end:
            own = table.timestamps[rows], table.values[rows]
            found.setdefault(table.series, []).append(own)
    return {
        name: (
            np.concatenate([times for times, _ in parts]),
            np.concatenate([values for _, values in parts]),
        )
        for name, parts in found.items()
    }


def _shared(before: dict[str, Rows], rows: dict[str, Rows]) -> dict[str, tuple[int, np.datetime64]]:
    """Number and first time of rows that both have, by series.

    If either has a single series, it may have another name. Other data may have the same names and
    times, but then most values differ.
    """
    single = min(len(before), len(rows)) == 1
    found = {}
    for name, new in rows.items():
        for other in before if single else {name} & before.keys():
            times = _same(before[other], new, is_named=other == name)
            if len(times):
                found[name] = len(times), times[0]
                break
    return found


def _same(before: Rows, rows: Rows, *, is_named: bool) -> NDArray[np.datetime64]:
    """The times of both, if most values are equal there.

    Rows count in which either has another value than the commonest one. Without any, the name
    decides.
    """
    times, left, right = np.intersect1d(before[0], rows[0], return_indices=True)
    old, new = before[1][left], rows[1][right]
    usual = np.array([_commonest(column) for column in np.concatenate([old, new]).T])
    counted = ((old != usual) | (new != usual)).any(axis=1)
    if not counted.any():
        return times if is_named else times[:0]
    equal = np.isclose(old[counted], new[counted]).all(axis=1)
    return times if equal.mean() > 0.5 else times[:0]


def _commonest(values: NDArray[np.float64]) -> float:
    found, counts = np.unique(values, return_counts=True)
    return float(found[counts.argmax()]) if len(found) else 0.0


def keep(model: Forecaster, folder: Path) -> None:
    """Give a model the weights of a trained network; only its decoder of covariates learns."""
    network = load(folder).model
    model.load_state_dict(network.state_dict(), strict=False)
    for name, weight in model.named_parameters():
        weight.requires_grad_(name.startswith("covariate_decoder."))
