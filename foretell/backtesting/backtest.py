"""A backtest: forecasts of a model from rolling origins, next to baselines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from foretell.backtesting.subject import Subject, predictor
from foretell.bundle.checksums import sha256
from foretell.bundle.scaler import Scaler
from foretell.bundle.verdict import baseline_names, compare
from foretell.data.coding import recoded
from foretell.data.panel import Panel
from foretell.data.splits import spans_before
from foretell.training.accuracy import (
    Predictor,
    Scores,
    baselines,
    known_targets,
    mean_of_known,
    score,
)
from foretell.training.config import TrainingConfig
from foretell.training.preparation import Prepared, prepare, scaler_for
from foretell.training.progress import Progress
from foretell.training.trainer import Trainer
from foretell.training.windows import Batch, Windows

MODEL = "model"
# The trained baseline.
_LINEAR = "dlinear"
# Validation share of the linear baseline, out of the rows before the first origin.
_VALIDATION = 1 / 8

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Held:
    """Coverage and mean width of intervals, each `[horizon, targets]`.

    Attributes:
        share: Share of values inside the interval; NaN where `counts` is 0.
        width: Mean width in standard deviations.
        counts: Number of known values.
    """

    share: Floats
    width: Floats
    counts: NDArray[np.int64]

    def overall(self, places: Sequence[int]) -> float:
        """Share over all steps of these targets."""
        return mean_of_known(self.share[:, places], self.counts[:, places])


@dataclass(frozen=True)
class Backtest:
    """Results of a backtest.

    Attributes:
        name: Name of the model.
        channels: Names of the channels that are forecast.
        unit: Standard deviations, the units of errors `[channels]`.
        origins: Number of forecasts.
        first: First time that was forecast.
        last: Last time that was forecast.
        scores: Scores by forecaster, in these units: `model` first, then the baselines.
        held: Coverage of intervals by level; empty for a model without quantiles.
        short: Series that are too short for a forecast.
    """

    name: str
    channels: tuple[str, ...]
    unit: Floats
    origins: int
    first: np.datetime64
    last: np.datetime64
    scores: Mapping[str, Scores]
    held: Mapping[float, Held]
    short: tuple[str, ...] = ()

    @property
    def verdict(self) -> str:
        """Comparison of the model with the baselines, in one line."""
        model, *others = self.scores.items()
        return compare(model[1].overall(), {name: one.overall() for name, one in others})

    def lines(self) -> dict[str, Floats]:
        """Absolute errors `[horizon, channels]` by forecaster, the model's under its name."""
        return {
            self.name if name == MODEL else name: scores.mae for name, scores in self.scores.items()
        }

    def table(self) -> pd.DataFrame:
        """A row for each channel, step and forecaster."""
        return pd.DataFrame(self._rows())

    def _rows(self) -> Iterator[dict[str, object]]:
        for place, channel in enumerate(self.channels):
            for name, scores in self.scores.items():
                for step in range(len(scores.mse)):
                    row: dict[str, object] = {
                        "channel": channel,
                        "step": step + 1,
                        "forecaster": name,
                        "mse": scores.mse[step, place],
                        "mae": scores.mae[step, place],
                        "unit": self.unit[place],
                    }
                    for level, held in self.held.items() if name == MODEL else ():
                        row[f"held_{level:.0%}"] = held.share[step, place]
                        row[f"width_{level:.0%}"] = held.width[step, place]
                    yield row


def settings_for(subject: Subject, share: float) -> TrainingConfig:
    """Settings of the linear baseline, which is trained on the rows before the forecast share."""
    known = 1 - share
    return TrainingConfig(
        arch=_LINEAR,
        target=subject.targets,
        context=subject.context,
        horizon=subject.horizon,
        splits=(known * (1 - _VALIDATION), known * _VALIDATION, share),
        learning_rate=5e-3,
        device="cpu",
    )


def saw(subject: Subject, panel: Panel, share: float) -> bool:
    """Whether the model is known to be trained on rows that it would be tested on."""
    data, source = subject.data, panel.source
    if data is None or source is None or sha256(source.path) != data.sha256:
        return False
    own = data.splits.cut(panel, subject.context, subject.horizon)
    here = settings_for(subject, share).cuts.cut(panel, subject.context, subject.horizon)
    learnt: dict[int, int] = {}
    for span in (*own.train, *own.validation):
        learnt[span.table] = max(learnt.get(span.table, 0), span.end)
    return any(span.start + subject.context < learnt.get(span.table, 0) for span in here.test)


def backtest(subject: Subject, panel: Panel, *, share: float, stride: int) -> Backtest:
    """Forecast the last rows of every series from one origin after another.

    Args:
        subject: The model.
        panel: Data with the model's channels and frequency.
        share: Share of each series, at its end, that is forecast.
        stride: Steps from one origin to the next.

    Raises:
        DataError: a series is too short.
        TrainingError: the linear baseline diverged.
    """
    settings = settings_for(subject, share)
    panel = recoded(panel, subject.covariates)
    # The linear baseline reads the series alone.
    plain = replace(panel, covariates=None)
    prepared = prepare(settings, plain)
    identity = Scaler.identity(len(panel.channels))
    windows = Windows(
        panel,
        prepared.split.test,
        subject.context,
        subject.horizon,
        identity,
        subject.calendar,
        prepared.config.targets,
    )
    times = [
        panel.tables[span.table].timestamps[[span.start + subject.context, span.end - 1]]
        for span in prepared.split.test
        if span.windows(subject.context, subject.horizon)
    ]
    first = min(pair[0] for pair in times)
    names, naive = baseline_names(panel.frequency), baselines(windows, panel.frequency)
    forecasters: dict[str, Predictor] = {
        MODEL: subject.predict,
        **{f"repeating {names[name]}": each for name, each in naive.items()},
        "DLinear": _train_linear(settings, plain, prepared, first),
    }
    chosen = torch.arange(0, len(windows), stride)
    scores, held = _run(subject, windows, chosen, forecasters)
    return Backtest(
        name=subject.name,
        channels=subject.targets,
        unit=np.array(subject.training.std),
        origins=len(chosen),
        first=first,
        last=max(pair[1] for pair in times),
        scores=scores,
        held=held,
        short=prepared.split.trained_on_only + prepared.split.left_out,
    )


def _train_linear(
    settings: TrainingConfig, panel: Panel, prepared: Prepared, first: np.datetime64
) -> Predictor:
    """Train the linear baseline on rows of all series before the first origin."""
    config, device = prepared.config, torch.device("cpu")
    learnt, judged = (list(spans_before(panel, spans, first)) for spans in prepared.split[:2])
    scaler = scaler_for(config, panel, learnt)
    train, validation = (Windows.of(config, panel, spans, scaler) for spans in (learnt, judged))
    trainer = Trainer(config, train, validation, settings, device)
    while not trainer.finished:
        trainer.run_epoch(Progress())
    trainer.restore_best()
    return predictor(trainer.model, scaler)


def _run(
    subject: Subject, windows: Windows, chosen: Tensor, forecasters: Mapping[str, Predictor]
) -> tuple[dict[str, Scores], dict[float, Held]]:
    """Errors of all forecasters on the chosen windows, and coverage of the model's intervals."""
    unit, shape = np.array(subject.training.std), (subject.horizon, len(subject.targets))
    inside = {level: np.zeros((2, *shape)) for level in subject.levels()}

    def look(batch: Batch, forecast: Floats) -> None:
        target, known = batch.target.numpy().astype(np.float64), known_targets(batch)
        made = np.asarray(forecast, np.float32)
        for level, found in inside.items():
            assert subject.intervals is not None  # noqa: S101 - it has levels
            tails = ((1 - level) / 2, (1 + level) / 2)
            low, high = subject.intervals.quantiles(batch.history.numpy(), made, tails)
            within = (low <= target) & (target <= high)
            found += (within & known).sum(axis=0), ((high - low) / unit).sum(axis=0)

    batches = map(windows.batch, torch.split(chosen, subject.batch))
    scores = score(forecasters, batches, unit, look)
    counts = scores[MODEL].counts
    with np.errstate(invalid="ignore"):
        return scores, {
            level: Held(share / counts, width / len(chosen), counts)
            for level, (share, width) in inside.items()
        }
