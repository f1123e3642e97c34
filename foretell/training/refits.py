"""Errors of refits, for calibration where the validation split is too short.

Each refit learns from earlier rows of training and validation and forecasts the rows that follow,
with more rows each time (rolling origin, Tashman 2000). All series are cut at one date, so no refit
learns from a row later than the start of a forecast. A refit learns from fewer rows than the model,
so its errors are rather too large than too small.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray

from foretell.bundle.bounds import limits
from foretell.bundle.calibration import FLOOR, scale
from foretell.data.errors import DataError
from foretell.data.panel import Panel
from foretell.data.scaler import typical_share
from foretell.data.splits import Span, count_windows, rows_before, spans_of
from foretell.models.batches import windows_that_fit
from foretell.models.checkpoint import Refits
from foretell.training.accuracy import known_targets
from foretell.training.config import TrainingConfig
from foretell.training.preparation import Prepared, scaler_for, targets_of
from foretell.training.progress import Progress
from foretell.training.trainer import Trainer
from foretell.training.windows import Windows

# Shares of the rows of training and validation, in the order of time, where a refit's training rows
# end. It forecasts the rows up to the next share.
_SHARES = (0.5, 0.625, 0.75, 0.875)
REFITS = len(_SHARES)


def refit_errors(
    settings: TrainingConfig,
    panel: Panel,
    prepared: Prepared,
    epochs: int,
    device: torch.device,
) -> Refits:
    """Train the refits and collect their errors within the bounds of the settings.

    Args:
        settings: Settings of the training.
        panel: The data.
        prepared: The prepared training of the model.
        epochs: Epoch of the model's best weights. The refits train for as many, without early
            stopping.
        device: Device to train on.

    Raises:
        DataError: no refit has rows to learn from and rows to forecast.
        TrainingError: a refit diverged.
    """
    ends: dict[int, int] = {}
    for span in (*prepared.split.train, *prepared.split.validation):
        ends[span.table] = max(ends.get(span.table, 0), span.end)
    config = prepared.config
    known_scaler = prepared.scaler.training
    share = typical_share(panel, prepared.split.train, known_scaler, config.targets)
    floor = FLOOR * share * np.array(known_scaler.of(config.targets).std)
    found: list[tuple[NDArray[np.float64], ...]] = []
    times = np.sort(
        np.concatenate([panel.tables[table].timestamps[:end] for table, end in ends.items()])
    )
    dates = [times[int(len(times) * share)] for share in _SHARES]
    for date, following in pairwise([*dates, times[-1] + np.timedelta64(1, "us")]):
        learnt: list[Span] = []
        coming: list[Span] = []
        for tables in panel.series.values():
            rows = sum(ends.get(table, 0) for table in tables)
            cut, last = (min(rows_before(panel, tables, at), rows) for at in (date, following))
            learnt += spans_of(panel, tables, 0, cut)
            # Origins lie before the next cut; the horizon of the last one may reach beyond it.
            reach = min(last + config.horizon - 1, rows)
            coming += spans_of(panel, tables, cut - config.context, reach)
        sizes = config.context, config.horizon
        if not all(count_windows(spans, *sizes) for spans in (learnt, coming)):
            continue
        scaler = scaler_for(config, panel, learnt)
        train, test = (Windows.of(config, panel, spans, scaler) for spans in (learnt, coming))
        trainer = Trainer(config, train, test, settings, device)
        for _ in range(epochs):
            trainer.run_epoch(Progress())
        of_targets = scaler.of(config.targets)
        mean, std = np.array(of_targets.mean), np.array(of_targets.std)
        with torch.inference_mode():
            for batch in test.batches(windows_that_fit(trainer.judged)):
                forecast = trainer.judged(*batch.inputs)
                history = batch.history[..., test.targets]
                ahead, actual, known = (
                    each.cpu().numpy().astype(np.float64) * std + mean
                    for each in (forecast, batch.target, history)
                )
                actual[~known_targets(batch)] = np.nan
                found.append((actual, ahead, scale(known, floor)))
    if not found:
        raise DataError("no refit has rows to learn from and rows to forecast")
    within = limits(settings.bounds, targets_of(settings, panel.channels, panel.covariates))
    actuals, forecasts, scales = map(np.concatenate, zip(*found, strict=True))
    return Refits.of(actuals, forecasts, scales, within)
