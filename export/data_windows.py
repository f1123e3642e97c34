"""Windows to verify an exported graph on."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from foretell.bundle.covariates import STATIC_COVARIATES, Covariate, Covariates
from foretell.bundle.scaler import Scaler
from foretell.data.coding import recoded
from foretell.data.errors import DataError, MissingFileError
from foretell.data.panel import Panel
from foretell.data.reading import Reading, read
from foretell.data.source import DataSource
from foretell.data.splits import Span, Spans, Split
from foretell.export.window_set import Floats, WindowSet
from foretell.models.checkpoint import CheckpointInfo
from foretell.timeaxis.frequency import Frequency
from foretell.training.windows import Windows


def data_of(info: CheckpointInfo, data: Path | None = None) -> Panel | None:
    """The data of a checkpoint, with the model's codes of covariates; None without any.

    Args:
        info: Description of the model.
        data: Current path of the file that the checkpoint names, if it was moved. For a checkpoint
            that names no file, any file of its channels.

    Raises:
        DataError: the data cannot be read, differ from the training data, or lack a covariate.
    """
    source, covariates = DataSource.recorded(info.data), info.config.covariates
    if source is not None:
        try:
            panel = source.read(info.channels, Frequency.parse(info.frequency), data)
        except MissingFileError as error:
            raise DataError(f"{error}; --data takes a copy of it") from None
    elif data is not None:
        known = Reading(channels=info.channels, frequency=info.frequency)
        panel = read(data, known.model_copy(update=Reading.of_covariates(covariates)))
    else:
        return None
    return recoded(panel, covariates)


def split_of(info: CheckpointInfo, panel: Panel) -> Split | None:
    """Split of a checkpoint's own data; None for other data.

    Raises:
        DataError: a part holds no window.
    """
    source = DataSource.recorded(info.data)
    if source is None:
        return None
    return source.splits.cut(panel, info.config.context, info.config.horizon)


def windows_of(info: CheckpointInfo, panel: Panel) -> Windows:
    """All windows of the test split, or of all rows without a split, in the user's units.

    The panel has the model's codes of covariates.

    Raises:
        DataError: the rows hold no window.
    """
    split = split_of(info, panel)
    spans = whole(panel) if split is None else split.test
    return windows_in(info, panel, spans, info.config.horizon)


def whole(panel: Panel) -> Spans:
    """All rows of a panel."""
    return tuple(Span(place, 0, len(table)) for place, table in enumerate(panel.tables))


def windows_in(info: CheckpointInfo, panel: Panel, spans: Spans, horizon: int) -> Windows:
    """All windows of some rows in the user's units, with a future of `horizon` steps.

    The panel has the model's codes of covariates.

    Raises:
        DataError: the rows hold no window.
    """
    config = info.config
    # The graph standardises.
    identity = Scaler.identity(config.channels)
    return Windows(panel, spans, config.context, horizon, identity, config.calendar, config.targets)


def natural(windows: Windows, count: int, seed: int) -> WindowSet:
    """Randomly chosen windows of the data."""
    chosen = np.random.default_rng(seed).choice(len(windows), min(count, len(windows)), False)
    batch = windows.batch(torch.from_numpy(np.sort(chosen)))
    return WindowSet.of("natural", batch.inputs)


def synthetic(info: CheckpointInfo, count: int, seed: int) -> WindowSet:
    """Noisy cycles of random periods in the scale of each channel, for a model without its data."""
    config = info.config
    random = np.random.default_rng(seed)
    shape = (count, 1, config.channels)
    step = np.arange(config.context)[None, :, None]
    period = random.uniform(4, config.context, shape)
    cycle = np.sin(2 * np.pi * (step / period + random.uniform(0, 1, shape)))
    noise = random.normal(0, 0.5, (count, config.context, config.channels))
    known = info.scaler.training
    values = (cycle + noise) * np.array(known.std) + np.array(known.mean)
    inputs = {"history": values.astype(np.float32)}
    if config.calendar is not None:
        frequency = Frequency.parse(info.frequency)
        steps = config.context + config.horizon
        starts = np.datetime64("2020-01-01", "us") + random.integers(
            0, 10**6, count
        ) * np.timedelta64(1, "h")
        encoded = np.stack(
            [config.calendar.encode(frequency.steps_from(start, steps)) for start in starts]
        )
        inputs["history_calendar"] = encoded[:, : config.context]
        inputs["future_calendar"] = encoded[:, config.context :]
    if config.covariates is not None:
        inputs |= _random_codes(config.covariates, config.context, config.horizon, count, random)
    return WindowSet("synthetic", inputs)


def _random_codes(
    covariates: Covariates, context: int, horizon: int, count: int, random: np.random.Generator
) -> dict[str, Floats]:
    """Random codes of covariates, by the name of their input."""

    def of(kinds: Sequence[Covariate], shape: tuple[int, ...]) -> Floats:
        codes = np.empty((*shape, len(kinds)), np.float32)
        for place, each in enumerate(kinds):
            if each.type == "number":
                codes[..., place] = random.normal(each.mean or 0.0, each.std, shape)
            else:
                known = max(len(each.categories), 2 if each.type == "boolean" else 1)
                codes[..., place] = random.integers(0, known + each.other, shape)
        return codes

    found = {}
    for name, shape in covariates.shapes(context, horizon).items():
        kinds = covariates.static if name == STATIC_COVARIATES else covariates.future
        found[name] = of(kinds, (count, *shape[:-1]))
    return found
