"""Accuracy of an exported graph on the test split, by step and channel."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from foretell.bundle.bounds import limits
from foretell.bundle.calibration import Calibration, bounds, scale
from foretell.bundle.evaluation import Evaluation
from foretell.bundle.results import CalibrationReport
from foretell.data.panel import Panel
from foretell.export.data_windows import windows_of
from foretell.export.runtime import Graph
from foretell.models.checkpoint import CheckpointInfo
from foretell.training.accuracy import baselines, known_targets, score
from foretell.training.windows import Batch

_LEVELS = np.array([0.025, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.975])
# Number of windows whose quantiles are counted, evenly spaced.
_WINDOWS = 1024


def evaluate_graph(
    graph: Graph,
    info: CheckpointInfo,
    panel: Panel,
    batch: int,
    calibrated: tuple[Calibration, CalibrationReport] | None,
) -> Evaluation:
    """Errors of the graph and of the baselines, and coverage of the quantiles.

    Args:
        graph: Graph of the bundle.
        info: Metadata of the checkpoint.
        panel: Data of the checkpoint.
        batch: Most windows run together.
        calibrated: Quantiles of the graph, if it has any.
    """
    windows = windows_of(info, panel)
    shares = _Shares(info, calibrated, -(-len(windows) // _WINDOWS), windows.targets)
    found = score(
        {"onnx": graph.predict, **baselines(windows, panel.frequency)},
        windows.batches(batch),
        np.array(info.target_scaler.training.std),
        shares.look,
    )
    below, up_to = shares.found()
    return Evaluation(
        tuple(found),
        np.stack([one.mse for one in found.values()]),
        np.stack([one.mae for one in found.values()]),
        shares.levels,
        below,
        up_to,
        found["onnx"].counts,
    )


class _Shares:
    """Counts values below the quantiles, and at or below them, in every `stride`-th window."""

    def __init__(
        self,
        info: CheckpointInfo,
        calibrated: tuple[Calibration, CalibrationReport] | None,
        stride: int,
        targets: list[int] | slice,
    ) -> None:
        self._stride, self._targets = stride, targets
        self._within = limits(info.bounds, info.targets)
        self.levels = np.empty(0)
        self._offsets = np.empty((0, info.config.horizon, len(info.targets)))
        self._floor = np.zeros(len(info.targets))
        if calibrated is not None:
            offsets, report = calibrated
            low, high = bounds(report.windows[0])
            self.levels = _LEVELS[(low <= _LEVELS) & (high >= _LEVELS)]
            self._offsets = offsets.at(self.levels, info.config.horizon)
            self._floor = report.floor * np.array(info.target_scaler.training.std)
        self._sums = np.zeros((2, len(self.levels), len(info.targets)))
        self._seen, self._counted = 0, np.zeros(len(info.targets))

    def look(self, batch: Batch, forecast: NDArray[np.float64]) -> None:
        """Count the values of a batch."""
        rows = slice(-self._seen % self._stride, None, self._stride)
        self._seen += len(forecast)
        ahead, target = forecast[rows], batch.target.numpy()[rows]
        known = known_targets(batch)[rows]
        spread = scale(batch.history[..., self._targets].numpy()[rows], self._floor)
        for place, offset in enumerate(self._offsets):
            edge = ahead + spread * offset
            if self._within is not None:
                edge = self._within.apply(edge)
            # Rounded like the actual values, many of which may lie on a bound.
            edge = edge.astype(np.float32)
            for sums, held in zip(self._sums, (target < edge, target <= edge), strict=True):
                sums[place] += (held & known).sum((0, 1))
        self._counted += known.sum((0, 1))

    def found(self) -> NDArray[np.float64]:
        """The shares `[2, levels, targets]`, below and at or below."""
        with np.errstate(invalid="ignore"):
            shares: NDArray[np.float64] = self._sums / self._counted
        return shares
